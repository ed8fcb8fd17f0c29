// User objects: a destructor that runs when nobody refers to the object any more.
#pragma once

namespace softgpu {

class Runtime;
struct UserObject;

void retain_references(UserObject* object, unsigned count);
// The destructor runs, once, on a thread of its own kind when the last one goes.
void release_references(Runtime& rt, UserObject* object, unsigned count);

}  // namespace softgpu
