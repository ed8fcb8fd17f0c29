// Runs a program that is killed when the process that started it ends, however that one ends.
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
  if (getppid() != parent) return 1;  // the parent ended before prctl took effect
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
