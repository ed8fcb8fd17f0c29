// The same way to the device process as the driver's.
#include "../driver/connection.cpp"
