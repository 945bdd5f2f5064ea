#include "launcher/local_address.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "launcher/agent/background_task.h"
#include "launcher/hosting.h"
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
