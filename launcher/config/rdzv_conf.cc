#include "launcher/config/rdzv_conf.h"

#include <algorithm>
#include <climits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"

namespace ddprun {
namespace {

// Four heartbeats are sent per lease. With a shorter lease, delays on a busy machine would cause the
// eviction of healthy nodes.
constexpr int kLeastLeaseMs = 100;
constexpr int kDefaultEtcdPort = 2379;

absl::Status Bad(absl::string_view entry, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(entry, ": expected ", want));
}

absl::StatusOr<bool> Bool(absl::string_view entry, absl::string_view value) {
  const std::string text = absl::AsciiStrToLower(value);
  for (const absl::string_view yes : {"1", "true", "t", "yes", "y"}) {
    if (text == yes) return true;
  }
  for (const absl::string_view no : {"0", "false", "f", "no", "n"}) {
    if (text == no) return false;
  }
  return Bad(entry, "true or false");
}

// The text of a key that is for etcd; null for any other key. torchrun has two back ends for etcd, with different names.
std::string* EtcdText(absl::string_view key, EtcdConf& etcd) {
  if (key == "etcd_prefix") return &etcd.prefix;
  if (key == "cacert" || key == "ca_cert") return &etcd.ca_cert;
  if (key == "cert" || key == "ssl_cert") return &etcd.cert;
  if (key == "key" || key == "ssl_cert_key") return &etcd.key;
  if (key == "user") return &etcd.user;
  if (key == "password_file") return &etcd.password_file;
  return nullptr;
}

// True if `key` has an effect with the backend. Invalid values of other keys cause warnings, not errors.
bool HasEffect(absl::string_view key, Backend backend) {
  EtcdConf etcd;
  if (key == "protocol" || EtcdText(key, etcd) != nullptr) return backend == Backend::kEtcd;
  for (const char* const read : {"join_timeout", "read_timeout", "lease_ms"}) {
    if (key == read) return true;
  }
  if (backend == Backend::kStatic) return key == "timeout";
  if (backend == Backend::kEtcd) return key == "last_call_timeout";
  return key == "last_call_timeout" || key == "is_host" || key == "store_type";
}

// Returns kNotFound if `key` is unknown.
absl::Status Set(absl::string_view entry, absl::string_view key, absl::string_view value, RdzvConf& conf) {
  if (key == "keep_alive_max_attempt") {
    return WholeNumber(key, value, 1, INT_MAX, "a whole number, more than 0").status();
  }
  if (key == "lease_ms") {
    ASSIGN_OR_RETURN(const int number,
                     WholeNumber(key, value, kLeastLeaseMs, INT_MAX,
                                 absl::StrCat("whole milliseconds, at least ", kLeastLeaseMs)));
    conf.lease = milliseconds(number);
    return absl::OkStatus();
  }
  if (key == "is_host") {
    ASSIGN_OR_RETURN(conf.is_host, Bool(entry, value));
    return absl::OkStatus();
  }
  if (key == "protocol") {
    conf.etcd.tls = value == "https";
    return value == "https" || value == "http" ? absl::OkStatus() : Bad(entry, "http or https");
  }
  if (std::string* const text = EtcdText(key, conf.etcd)) {
    *text = std::string(value);
    return absl::OkStatus();
  }
  if (key == "store_type") {
    return value == "tcp" ? absl::OkStatus() : Bad(entry, "tcp, the only supported type");
  }
  const bool is_torchruns =
      key == "close_timeout" || key == "heartbeat_timeout" || key == "keep_alive_interval";
  if (!is_torchruns && key != "join_timeout" && key != "read_timeout" && key != "timeout" &&
      key != "last_call_timeout") {
    return absl::NotFoundError(absl::StrCat("unknown key ", key));
  }
  ASSIGN_OR_RETURN(const int number, WholeNumber(key, value, 1, INT_MAX, "whole seconds, more than 0"));
  const Duration time = ClampedSeconds(number);
  if (key == "join_timeout") conf.join_timeout = time;
  if (key == "read_timeout") conf.read_timeout = time;
  if (key == "timeout") conf.timeout = time;
  if (key == "last_call_timeout") conf.last_call_timeout = time;
  return absl::OkStatus();
}

absl::Status CheckPairs(const EtcdConf& etcd) {
  const auto missing = [](absl::string_view given, absl::string_view other) {
    return absl::InvalidArgumentError(absl::StrCat(given, " needs ", other, ", which is not given"));
  };
  if (!etcd.cert.empty() && etcd.key.empty()) return missing("cert", "key");
  if (etcd.cert.empty() && !etcd.key.empty()) return missing("key", "cert");
  if (!etcd.user.empty() && etcd.password_file.empty()) return missing("user", "password_file");
  if (etcd.user.empty() && !etcd.password_file.empty()) return missing("password_file", "user");
  if (!etcd.tls && !(etcd.ca_cert.empty() && etcd.cert.empty())) return missing("cert", "protocol=https");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(absl::string_view text, int default_port,
                                                     absl::string_view of, absl::string_view example) {
  std::vector<Endpoint> endpoints;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(part, default_port));
    if (endpoint.port == 0 || IsUnspecifiedAddress(endpoint.host)) {
      return absl::InvalidArgumentError(absl::StrCat("expected addresses of ", of, ", as in ", example));
    }
    if (std::ranges::find(endpoints, endpoint) != endpoints.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected different endpoints of ", of, "; ", ToString(endpoint), " is there twice"));
    }
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

// Returns a hint if `entry` contains literal quotes. Nested shells, job files and argument lists can leave
// quotes in a value by mistake.
absl::string_view HintAtQuotes(absl::string_view entry) {
  if (entry.find_first_of("'\"") == absl::string_view::npos) return "";
  return " (the quotes are part of the value: leave them out)";
}

}  // namespace

const char* NameOf(Backend backend) {
  switch (backend) {
    case Backend::kStatic:
      return "static";
    case Backend::kC10d:
      return "c10d";
    case Backend::kEtcd:
      return "etcd";
  }
  return "";
}

absl::StatusOr<std::vector<Endpoint>> ParseEtcdEndpoints(absl::string_view text) {
  return ParseEndpoints(text.empty() ? "localhost" : text, kDefaultEtcdPort, "etcd", "etcd1:2379,etcd2:2379");
}

absl::StatusOr<std::vector<Endpoint>> ParseAgentEndpoints(absl::string_view text, int default_port) {
  return ParseEndpoints(text, default_port, "agents", "node1:29400,node2:29400");
}

absl::StatusOr<RdzvConf> ParseRdzvConf(absl::string_view text, Backend backend,
                                       std::vector<std::string>& warnings) {
  RdzvConf conf;
  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(parts[0]);
    const absl::string_view value = parts.size() == 2 ? absl::StripAsciiWhitespace(parts[1]) : "";
    if (key.empty() || value.empty()) return Bad(entry, "KEY=VALUE, as in join_timeout=600");
    const absl::Status set = Set(entry, key, value, conf);
    if (set.ok()) continue;
    const std::string why = absl::StrCat(set.message(), HintAtQuotes(entry));
    if (HasEffect(key, backend)) return absl::InvalidArgumentError(why);
    warnings.push_back(absl::StrCat("--rdzv-conf: ", why, "; ignored",
                                    absl::IsNotFound(set) ? "" : ", as it has no effect here"));
  }
  if (backend == Backend::kEtcd) RETURN_IF_ERROR(CheckPairs(conf.etcd));
  return conf;
}

}  // namespace ddprun
