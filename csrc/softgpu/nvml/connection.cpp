// The same way to the device process as the driver's; each library carries its own copy.
#include "../driver/connection.cpp"
