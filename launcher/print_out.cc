#include "launcher/print_out.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ddprun {

int PrintOut(absl::string_view text) {
  if (fwrite(text.data(), 1, text.size(), stdout) == text.size() && fflush(stdout) == 0) return 0;
  if (errno != EPIPE) fprintf(stderr, "ddprun: error: cannot write to stdout: %s\n", strerror(errno));
  return 1;
}

}  // namespace ddprun
