// ddpctl: shows and changes a running job from outside.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ddprun {

// Output of ddpctl. `redraw`: `out` is a terminal, which --watch redraws in place.
struct CtlStreams {
  std::ostream& out;
  std::ostream& err;
  bool redraw = false;
};

// Runs ddpctl. `args` does not include the program's name. Returns the exit code: 0; 1 if there is no valid
// answer from the coordinator; 2 for a usage error; 3 if the coordinator refuses the request.
int RunCtl(const std::vector<std::string>& args, CtlStreams streams);
// Uses stdout and stderr of this process.
int RunCtl(const std::vector<std::string>& args);

}  // namespace ddprun
