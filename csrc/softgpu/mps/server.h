// An MPS server is a connection to the device process. Its clients end with it.
#pragma once

namespace tandem::softgpu::mps {

// `control` is a SEQPACKET socket to the control program. Returns the exit code once either the
// control program or the device process has gone.
int serve(int control);

}  // namespace tandem::softgpu::mps
