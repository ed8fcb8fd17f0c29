// For loops in graphs. Only the software GPU's compiler accepts the setter without linking
// cudadevrt.
extern "C" __global__ void countdown(unsigned* word, unsigned long long condition) {
  *word -= 1;
  cudaGraphSetConditional(condition, *word != 0);
}
TANDEM_KERNEL(countdown, 2, 8)
