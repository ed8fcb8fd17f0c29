// User objects: a destructor that runs when nothing refers to the object any more.
#pragma once

namespace softgpu {

class Runtime;
struct UserObject;

void retain_references(UserObject* object, unsigned count);
// When the last reference goes, the destructor runs once, on a thread that only runs destructors.
void release_references(Runtime& rt, UserObject* object, unsigned count);

}  // namespace softgpu
