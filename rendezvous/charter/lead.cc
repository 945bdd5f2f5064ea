#include "rendezvous/charter/lead.h"

#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "boost/json/object.hpp"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value_to.hpp"

namespace ddprun {
namespace {

constexpr int kFormat = 1;
constexpr size_t kMaxBytes = 4096;
constexpr int64_t kMaxLeaseMs = int64_t{1000} * 3600 * 24 * 365;  // so that no sum overflows

absl::string_view ToString(Lead::State state) {
  switch (state) {
    case Lead::State::kLeads:
      return "leads";
    case Lead::State::kLeft:
      return "left";
    case Lead::State::kClosed:
      return "closed";
  }
  return "?";
}

absl::StatusOr<Lead::State> StateOf(absl::string_view text) {
  for (const Lead::State state : {Lead::State::kLeads, Lead::State::kLeft, Lead::State::kClosed}) {
    if (text == ToString(state)) return state;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown state ", text));
}

absl::Status NotALead(absl::string_view encoded, absl::string_view why) {
  constexpr size_t kShown = 60;
  return absl::InvalidArgumentError(absl::StrCat("not the lead of a ddprun job (", why,
                                                 "): ", encoded.substr(0, kShown),
                                                 encoded.size() > kShown ? "..." : ""));
}

}  // namespace

std::string EncodeLead(const Lead& lead) {
  return boost::json::serialize(boost::json::object{{"format", kFormat},
                                                    {"epoch", lead.epoch},
                                                    {"leader", lead.leader},
                                                    {"address", lead.address},
                                                    {"state", std::string(ToString(lead.state))},
                                                    {"lease_ms", ToMillis(lead.lease)},
                                                    {"swap", lead.swap},
                                                    {"charter", lead.charter}});
}

absl::StatusOr<Lead> DecodeLead(absl::string_view encoded) {
  if (encoded.size() > kMaxBytes) return NotALead(encoded, absl::StrCat(encoded.size(), " bytes"));
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse({encoded.data(), encoded.size()}, error);
  if (error || !value.is_object()) return NotALead(encoded, "not a JSON object");
  const boost::json::object& object = value.get_object();
  const auto number = [&object](absl::string_view key) -> std::optional<int64_t> {
    const boost::json::value* const found = object.if_contains({key.data(), key.size()});
    if (found == nullptr || !found->is_int64() || found->get_int64() < 0) return std::nullopt;
    return found->get_int64();
  };
  const auto text = [&object](absl::string_view key) -> std::optional<std::string> {
    const boost::json::value* const found = object.if_contains({key.data(), key.size()});
    if (found == nullptr || !found->is_string()) return std::nullopt;
    return std::string(found->get_string());
  };
  const auto format = number("format");
  if (!format) return NotALead(encoded, "no format");
  if (*format != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat("the lead of the job has format ", *format,
                                                   ", and this ddprun knows ", kFormat,
                                                   ": start all nodes with the same version of ddprun"));
  }
  const auto epoch = number("epoch"), swap = number("swap"), charter = number("charter"),
             lease = number("lease_ms");
  const auto leader = text("leader"), address = text("address"), state_text = text("state");
  if (!epoch || !swap || !charter || !lease || !leader || !address || !state_text)
    return NotALead(encoded, "a field is missing");
  const absl::StatusOr<Lead::State> state = StateOf(*state_text);
  if (!state.ok()) return NotALead(encoded, state.status().message());
  if (*lease > kMaxLeaseMs) return NotALead(encoded, "its lease is too long");
  return Lead{*epoch, *leader, *address, *state, milliseconds(*lease), *swap, *charter};
}

}  // namespace ddprun
