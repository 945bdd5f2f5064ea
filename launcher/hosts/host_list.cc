#include "launcher/hosts/host_list.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

constexpr int kMaxSlots = 1 << 14;
constexpr size_t kMaxHosts = 1024;
constexpr size_t kMaxShown = 100;
constexpr char kForm[] = "expected HOST[:SLOTS],... such as node1:8,node2:8";

template <typename... Text>
absl::Status Bad(absl::string_view entry, const Text&... text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", entry.substr(0, kMaxShown), entry.size() > kMaxShown ? "..." : "", "\": ", text...));
}

bool Consists(absl::string_view text, absl::string_view punctuation) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(punctuation, c);
  });
}

// A name that begins with '-' would be an option of ssh.
bool IsName(absl::string_view name) { return !name.empty() && name[0] != '-' && Consists(name, "._-"); }

bool IsLoopbackName(absl::string_view name) {
  return name == "localhost" || name == "::1" || absl::StartsWith(name, "127.");
}

absl::StatusOr<HostSlots> ParseHost(absl::string_view entry) {
  HostSlots host;
  absl::string_view rest = entry;
  std::string user;
  if (const size_t at = rest.rfind('@'); at != absl::string_view::npos) {
    user = std::string(rest.substr(0, at + 1));
    rest.remove_prefix(at + 1);
    if (!IsName(absl::StripSuffix(user, "@"))) return Bad(entry, "the user before @ is not valid: ", kForm);
  }
  if (absl::ConsumePrefix(&rest, "[")) {
    const size_t end = rest.find(']');
    if (end == absl::string_view::npos) return Bad(entry, "a ] is missing: ", kForm);
    host.name = std::string(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (!absl::StrContains(host.name, ':') || !Consists(host.name, ":.%")) {
      return Bad(entry, "expected an IPv6 address in the brackets, such as [fd00::1]:8");
    }
  } else {
    host.name = std::string(rest.substr(0, rest.find(':')));
    rest.remove_prefix(host.name.size());
    if (!IsName(host.name)) return Bad(entry, kForm);
  }
  host.login = user + host.name;
  if (rest.empty()) return host;
  if (!absl::ConsumePrefix(&rest, ":")) return Bad(entry, kForm);
  if (absl::StrContains(rest, ':'))
    return Bad(entry, "write an IPv6 address in brackets, such as [fd00::1]:8");
  if (!Consists(rest, "") || !absl::SimpleAtoi(rest, &host.slots) || host.slots < 1 ||
      host.slots > kMaxSlots) {
    return Bad(entry, "expected a number of workers from 1 to ", kMaxSlots, " after the colon");
  }
  return host;
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text) {
  std::vector<HostSlots> hosts;
  std::set<std::string> names;
  if (text.empty()) return absl::InvalidArgumentError(kForm);
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::string_view entry = absl::StripAsciiWhitespace(part);
    if (entry.empty()) return Bad(text, "an entry is empty: ", kForm);
    ASSIGN_OR_RETURN(HostSlots host, ParseHost(entry));
    if (!names.insert(absl::AsciiStrToLower(host.name)).second) {
      return Bad(entry, "the host is given twice: write it once, with the sum of its slots");
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.size() > kMaxHosts) {
    return absl::InvalidArgumentError(
        absl::StrCat(hosts.size(), " hosts: expected at most ", kMaxHosts, "; use a scheduler for more"));
  }
  for (const HostSlots& host : hosts) {
    if (hosts.size() > 1 && IsLoopbackName(host.name)) {
      return Bad(host.name,
                 "the other hosts cannot reach this address: give a name that resolves on all hosts");
    }
  }
  return hosts;
}

}  // namespace ddprun
