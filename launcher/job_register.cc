#include "launcher/job_register.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/time.h"
#include "launcher/cli/read_within.h"
#include "launcher/hosting.h"
#include "net/endpoint.h"
#include "net/local_host.h"
#include "rendezvous/etcd/etcd_register.h"

namespace ddprun {
namespace {

// Of a file with a certificate, a key or a password, and for reading it.
constexpr size_t kMaxBytes = 1 << 20;
constexpr Duration kReadLimit = seconds(10);

std::vector<std::string> EndpointsOf(const LaunchConfig& config) {
  std::vector<std::string> endpoints;
  for (const Endpoint& endpoint : config.etcd_endpoints) endpoints.push_back(ToString(endpoint));
  return endpoints;
}

// The content of the file that a key of --rdzv-conf names; empty if it names none.
absl::StatusOr<std::string> Content(const std::string& path, absl::string_view key) {
  if (path.empty()) return std::string();
  ASSIGN_OR_RETURN(std::string content, ReadWithin(path, kMaxBytes, kReadLimit),
                   absl::StrCat("--rdzv-conf=", key, "=", path));
  if (content.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--rdzv-conf=", key, "=", path, ": the file is empty"));
  }
  return content;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CharterRegister>> OpenJobRegister(boost::asio::io_context& io,
                                                                 const LaunchConfig& config) {
  const EtcdConf& conf = config.rdzv.etcd;
  EtcdOptions options{.endpoints = EndpointsOf(config), .run_id = config.run_id, .user = conf.user};
  if (!conf.prefix.empty()) options.prefix = conf.prefix;
  if (conf.tls) {
    EtcdTls& tls = options.tls.emplace();
    ASSIGN_OR_RETURN(tls.ca, Content(conf.ca_cert, "ca_cert"));
    ASSIGN_OR_RETURN(tls.certificate, Content(conf.cert, "ssl_cert"));
    ASSIGN_OR_RETURN(tls.key, Content(conf.key, "ssl_cert_key"));
  }
  ASSIGN_OR_RETURN(const std::string password, Content(conf.password_file, "password_file"));
  options.password = std::string(absl::StripTrailingAsciiWhitespace(password));
  return std::make_unique<EtcdRegister>(io, std::move(options));
}

std::string NameOfRegister(const LaunchConfig& config) {
  if (config.has_voters()) return "a quorum of the job's voters";
  return absl::StrCat("etcd at ", absl::StrJoin(EndpointsOf(config), ", "));
}

std::string AddressTowardsRegister(const LaunchConfig& config) {
  for (const Endpoint& endpoint : config.etcd_endpoints) {
    for (const std::string& address : AddressesOf(endpoint.host)) {
      std::string local = LocalAddressTowards(address);
      // The name of this host may resolve to loopback here, which other nodes cannot use.
      const bool usable = !IsLoopback(local) || IsLoopback(endpoint.host);
      if (!local.empty() && usable) return local;
    }
  }
  return AddressOfThisMachine();
}

}  // namespace ddprun
