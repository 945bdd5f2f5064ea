// ddpctl: looks at a running job from outside.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

// `args` without the program's name. Returns the exit code: 0, 1 if the coordinator cannot be asked, 2 for a
// usage error.
int RunCtl(const std::vector<std::string>& args);

}  // namespace ddprun
