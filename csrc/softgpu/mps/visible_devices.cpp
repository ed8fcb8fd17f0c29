// Applies CUDA_VISIBLE_DEVICES with the driver's code.
#include "../driver/context/visible_devices.cpp"
