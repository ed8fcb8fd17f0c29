// By the same rules as the driver's.
#include "../driver/context/visible_devices.cpp"
