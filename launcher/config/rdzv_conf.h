// --rdzv-conf: timeouts and other settings of the rendezvous.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "net/endpoint.h"

namespace ddprun {

enum class Backend {
  kStatic,
  kC10d,
  kEtcd,  // the job has a register on etcd; see docs/decisions/0017-charter.md
};

// "static", "c10d" or "etcd".
const char* NameOf(Backend backend);

// etcd only: how to use the service.
struct EtcdConf {
  std::string prefix;         // of the keys; empty: the default
  bool tls = false;           // protocol=https
  std::string ca_cert;        // path of a file with PEM text; empty: the system's certificates
  std::string cert;           // likewise, of this client; empty: none
  std::string key;            // likewise; set if and only if `cert` is
  std::string user;           // empty: no authentication
  std::string password_file;  // path; set if and only if `user` is
  bool operator==(const EtcdConf&) const = default;
};

struct RdzvConf {
  Duration join_timeout = seconds(600);  // time limit for the minimum number of nodes to join
  // How long to wait for more nodes after the minimum number has joined. nullopt: 30 s, or a shorter default
  // if this node chose the endpoint.
  std::optional<Duration> last_call_timeout;
  Duration read_timeout = seconds(60);  // time limit for finding the coordinator
  // A node that is silent for this long counts as lost. The lease must be longer than any pause of a healthy
  // node. A long lease delays the reaction to a lost node.
  Duration lease = milliseconds(5000);
  // Whether this node hosts the coordinator; nullopt: only if it is the endpoint's host.
  std::optional<bool> is_host;
  std::optional<Duration> timeout;  // static only: time limit for all nodes to join; nullopt: join_timeout
  EtcdConf etcd = {};
  bool operator==(const RdzvConf&) const = default;
};

// Reads "HOST[:PORT],HOST[:PORT]", the endpoints of etcd's members. Empty: localhost.
//   Errors: kInvalidArgument with the expected form.
absl::StatusOr<std::vector<Endpoint>> ParseEtcdEndpoints(absl::string_view text);
// Likewise, the endpoints of agents.
absl::StatusOr<std::vector<Endpoint>> ParseAgentEndpoints(absl::string_view text, int default_port);

// Parses "key=value,key=value"; an empty `text` means the defaults above. Durations are clamped to one year.
//   warnings: receives a sentence for each unknown key, which torchrun ignores silently, and a sentence for
//             each invalid value of a key that has no effect with this backend.
//   Errors:   kInvalidArgument: an entry without key or value; an invalid value of a key that has an effect.
absl::StatusOr<RdzvConf> ParseRdzvConf(absl::string_view text, Backend backend,
                                       std::vector<std::string>& warnings);

}  // namespace ddprun
