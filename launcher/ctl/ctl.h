// ddpctl: shows the state of a running job and changes it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ddprun {

// Output streams of ddpctl.
struct CtlStreams {
  std::ostream& out;
  std::ostream& err;
  bool redraw = false;  // whether --watch redraws the page in place; requires that `out` is a terminal
};

// Runs ddpctl. `args` does not include the program's name. Returns the exit code: 0 on success; 1 if there is
// no valid response from the coordinator; 2 for a usage error; 3 if the coordinator refuses the request.
int RunCtl(const std::vector<std::string>& args, CtlStreams streams);
// Like the function above, with stdout and stderr of this process.
int RunCtl(const std::vector<std::string>& args);

}  // namespace ddprun
