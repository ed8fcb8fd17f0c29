// Connects to the device process with the driver's code.
#include "../driver/connection.cpp"
