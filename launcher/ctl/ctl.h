// ddpctl: looks at a running job from outside, and changes it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ddprun {

// Where it writes; `redraw`: `out` is a terminal, on which --watch draws anew in place.
struct CtlStreams {
  std::ostream& out;
  std::ostream& err;
  bool redraw = false;
};

// `args` without the program's name. Returns the exit code: 0, 1 if the coordinator cannot be asked, 2 for a
// usage error, 3 if it refuses.
int RunCtl(const std::vector<std::string>& args, CtlStreams streams);
// With the process's own streams.
int RunCtl(const std::vector<std::string>& args);

}  // namespace ddprun
