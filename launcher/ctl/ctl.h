// ddpctl: shows the state of a running job and changes it.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/endpoint.h"

namespace ddprun {

// Output streams of ddpctl.
struct CtlStreams {
  std::ostream& out;
  std::ostream& err;
  bool redraw = false;  // whether --watch redraws the page in place; requires that `out` is a terminal
};

// Where the coordinator of a job with a register is found: the values of the options of these names.
struct RegisterQuery {
  std::string job;
  std::string rdzv_endpoint;
  std::string rdzv_conf;
};
// Returns where the coordinator of the job serves at present.
//   Errors: kInvalidArgument: the options; kNotFound: there is no such job; kFailedPrecondition: the job is over;
//           kUnavailable: it has no coordinator at present, or the register does not answer. Those of CharterRegister.
using FindLeader = std::function<absl::StatusOr<Endpoint>(const RegisterQuery& query)>;

// Runs ddpctl. `args` does not include the program's name. Returns the exit code: 0 on success; 1 if there is
// no valid response from the coordinator; 2 for a usage error; 3 if the coordinator refuses the request.
int RunCtl(const std::vector<std::string>& args, const FindLeader& find_leader, CtlStreams streams);
// Like the function above, with stdout and stderr of this process.
int RunCtl(const std::vector<std::string>& args, const FindLeader& find_leader);

}  // namespace ddprun
