// Prints the completion script for the shell given as the first argument.

#include <cstdio>

#include "launcher/cli/completion.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return std::fputs(ddprun::CompletionScript(argv[1]).c_str(), stdout) < 0 ? 1 : 0;
}
