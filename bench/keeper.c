// Keeps the device process alive, and a context on it, until stdin ends: it would otherwise start on
// the CPU of the program that is measured, and end and start again between two of them.
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
