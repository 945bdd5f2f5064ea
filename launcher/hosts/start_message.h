// What the starter of --hosts sends to the agent of each host, on the standard input of ssh.
//
// The stream begins with one message: 8 bytes "ddprun1\n", the length of the rest as a 32-bit number with the most
// significant byte first, and an AgentStart of proto/start.proto. Each byte that follows is one frame: kStillHere, or the
// number of a signal that the agent gets. At the end of the stream, the agent behaves as after SIGTERM.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "launcher/hosts/host_list.h"
#include "launcher/scheduler/scheduled_job.h"

namespace ddprun {

struct StartMessage {
  std::vector<std::string> arguments = {};  // of ddprun, without argv[0]
  std::string directory = {};               // the working directory
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::vector<HostSlots> hosts = {};  // not empty
  int node = 0;                       // index of the receiver's host in `hosts`
  std::string run_id = {};            // differs between all jobs

  bool operator==(const StartMessage&) const = default;
};

// The frame that says that the starter is alive.
constexpr char kStillHere = 0;
constexpr Duration kStillHereInterval = seconds(15);
// An agent that has received no frame for this long behaves as at the end of the stream.
constexpr Duration kSilenceLimit = seconds(120);

// The agent prints a line with this text on stdout after it has read the message.
constexpr char kStartedLine[] = "ddprun-agent-started 1";

constexpr size_t kStartHeaderBytes = 12;
// Includes the header.
std::string EncodeStart(const StartMessage& message);
// Returns the length of the message after `header`, which has kStartHeaderBytes bytes.
//   Errors: kInvalidArgument: not the header of a message, or of another version; longer than 64 MiB.
absl::StatusOr<size_t> StartLength(absl::string_view header);
// `bytes`: the message without its header.
//   Errors: kInvalidArgument: not a message, no hosts, a node outside the hosts, NUL in a text.
absl::StatusOr<StartMessage> DecodeStart(absl::string_view bytes);

// The job as a node sees it that --hosts has started: the values of the options that the user has not given.
ScheduledJob JobOfHosts(const std::vector<HostSlots>& hosts, int node, const std::string& run_id);

}  // namespace ddprun
