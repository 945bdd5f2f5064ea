#include "launcher/hosts/start_message.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/start.pb.h"

namespace ddprun {
namespace {

constexpr absl::string_view kMagic = "ddprun1\n";
constexpr size_t kMaxBytes = 64 << 20;
constexpr char kOption[] = "--hosts";

}  // namespace

std::string EncodeStart(const StartMessage& message) {
  proto::AgentStart start;
  for (const std::string& argument : message.arguments) start.add_argument(argument);
  start.set_directory(message.directory);
  for (const auto& [name, value] : message.environment) {
    proto::AgentStart::Variable& variable = *start.add_environment();
    variable.set_name(name);
    variable.set_value(value);
  }
  for (const HostSlots& host : message.hosts) {
    proto::AgentStart::Host& sent = *start.add_host();
    sent.set_login(host.login);
    sent.set_name(host.name);
    sent.set_slots(host.slots);
  }
  start.set_node(message.node);
  start.set_run_id(message.run_id);
  const std::string bytes = start.SerializeAsString();
  std::string all(kMagic);
  for (int shift = 24; shift >= 0; shift -= 8) {
    all += static_cast<char>(static_cast<uint32_t>(bytes.size()) >> shift & 0xff);
  }
  return all + bytes;
}

absl::StatusOr<size_t> StartLength(absl::string_view header) {
  if (header.size() != kStartHeaderBytes || !absl::StartsWith(header, kMagic)) {
    return absl::InvalidArgumentError(
        "the input is not a message of this release of ddprun --hosts: install the same release on all "
        "hosts");
  }
  size_t length = 0;
  for (const char c : header.substr(kMagic.size())) length = length << 8 | static_cast<unsigned char>(c);
  if (length > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message of ddprun --hosts has ", length, " bytes, more than ", kMaxBytes));
  }
  return length;
}

absl::StatusOr<StartMessage> DecodeStart(absl::string_view bytes) {
  proto::AgentStart start;
  if (!start.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("the message of ddprun --hosts is damaged");
  }
  StartMessage message{.directory = start.directory(), .node = start.node(), .run_id = start.run_id()};
  bool has_nul = absl::StrContains(start.directory(), '\0');
  for (const std::string& argument : start.argument()) {
    has_nul |= absl::StrContains(argument, '\0');
    message.arguments.push_back(argument);
  }
  for (const auto& variable : start.environment()) {
    has_nul |= absl::StrContains(variable.name(), '\0') || absl::StrContains(variable.value(), '\0');
    message.environment.emplace_back(variable.name(), variable.value());
  }
  for (const auto& host : start.host()) {
    message.hosts.push_back({.login = host.login(), .name = host.name(), .slots = host.slots()});
  }
  if (has_nul || message.node < 0 || message.node >= static_cast<int>(message.hosts.size())) {
    return absl::InvalidArgumentError("the message of ddprun --hosts is not valid");
  }
  return message;
}

ScheduledJob JobOfHosts(const std::vector<HostSlots>& hosts, int node, const std::string& run_id) {
  ScheduledJob job = {.scheduler = kOption,
                      .node = node,
                      .id = run_id,
                      .id_variable = kOption,
                      .hosts_variable = kOption,
                      .node_variable = kOption};
  job.size.push_back({"nnodes", absl::StrCat(hosts.size()), kOption});
  const int slots = hosts[static_cast<size_t>(node)].slots;
  if (slots > 0) job.size.push_back({"nproc-per-node", absl::StrCat(slots), kOption});
  for (const HostSlots& host : hosts) job.hosts.push_back(host.name);
  job.first_host = {hosts[0].name};
  return job;
}

}  // namespace ddprun
