// Connects to the device process with the driver's code; each library carries its own copy.
#include "../driver/connection.cpp"
