// Runs a program that ends when the one who started it does, however that one ends.
//
//   leash PROGRAM ARGUMENT...
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return 1;  // it ended before the leash was on
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
