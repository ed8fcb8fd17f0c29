// An MPS server: a connection to the device process. Its clients live and die with it.
#pragma once

namespace tandem::softgpu::mps {

// `control` is a SEQPACKET socket to the control program. Returns the exit code, when either side
// has gone.
int serve(int control);

}  // namespace tandem::softgpu::mps
