#include "launcher/local_address.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "launcher/agent/background_task.h"
#include "launcher/hosting.h"
#include "net/endpoint.h"
#include "net/local_host.h"

namespace ddprun {
namespace {

constexpr Duration kResolveLimit = seconds(10);

absl::StatusOr<LocalAddress> Resolved(const std::string& given,
                                      const std::optional<std::vector<std::string>>& addresses) {
  if (!addresses || addresses->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--local-addr=", given, " does not resolve",
                     addresses ? "" : absl::StrCat(" within ", kResolveLimit / seconds(1), " s"),
                     ": give an address of this node, or a name that all nodes can resolve"));
  }
  LocalAddress local{.name = given};
  // This node's own name may resolve to a loopback address here, which other nodes cannot use.
  for (const std::string& address : *addresses) {
    const bool usable = IsLoopback(given) || !IsLoopback(address);
    if (local.numeric.empty() && usable) local.numeric = address;
  }
  return local;
}

}  // namespace

std::string AddressOfHost(const LaunchConfig& config, const std::string& given, const std::string& host) {
  if (!given.empty()) return given;
  if (config.max_nodes == 1) return "127.0.0.1";
  const std::string& endpoint = config.endpoint.host;
  if (IsLoopback(endpoint)) return ListenAddress(endpoint);
  if (!host.empty()) return host;
  // With the static backend, workers get the address exactly as given.
  const bool usable =
      !endpoint.empty() && (config.backend == Backend::kStatic || !IsUnspecifiedAddress(endpoint));
  return usable ? endpoint : AddressOfThisMachine();
}

std::string AddressForWorkers(const std::string& own, const std::string& name,
                              const std::vector<std::string>& agents) {
  if (!own.empty()) return own;
  if (IsNumericAddress(name) && IsThisMachineAtOnce(name).value_or(false)) return name;
  // The name of this node may resolve to loopback here. Instead of resolving it, use the local address of the route to another
  // agent.
  for (const std::string& agent : agents) {
    const std::string local = LocalAddressTowards(agent);
    if (!local.empty() && !IsLoopback(local)) return local;
  }
  return AddressOfThisMachine();
}

void ReadLocalAddress(boost::asio::io_context& io, const std::string& given,
                      std::function<void(absl::StatusOr<LocalAddress>)> done) {
  if (given.empty()) return done(LocalAddress());
  if (IsNumericAddress(given)) return done(LocalAddress{given, given});
  if (const std::optional<std::string> address = AddressOfInterface(given)) {
    if (!address->empty()) return done(LocalAddress{*address, *address});
    return done(absl::InvalidArgumentError(absl::StrCat(
        "--local-addr=", given,
        ": this network interface is down or has no address (`ip address` lists all interfaces): "
        "give another interface, or an address or name of this node")));
  }
  ComputeInBackground<std::vector<std::string>>(
      io, kResolveLimit, [given] { return AddressesOf(given); },
      [given, done = std::move(done)](const std::optional<std::vector<std::string>>& addresses) {
        done(Resolved(given, addresses));
      });
}

}  // namespace ddprun
