// Keeps the device process, and a context on it, alive until stdin ends. Otherwise the device
// process would start on the CPU of the program being measured, and end and restart between two
// programs.
//
//   keeper IMAGE
#include <unistd.h>

#include "driver.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  (void)make_ready(argv[1]);
  puts("ready");
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return 0;
}
