#include "rendezvous/coordinator/charter_codec.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/json_util.h"
#include "proto/charter.pb.h"
#include "proto/value_codec.h"

namespace ddprun {
namespace {

constexpr int kFormat = 1;

absl::Status NotACharter(absl::string_view encoded, absl::string_view why) {
  constexpr size_t kShown = 60;
  return absl::InvalidArgumentError(absl::StrCat("not the charter of a ddprun job (", why,
                                                 "): ", encoded.substr(0, kShown),
                                                 encoded.size() > kShown ? "..." : ""));
}

// Decodes what is left when the format and the job are known.
absl::StatusOr<Charter> Decode(const proto::JobCharter& in) {
  Charter charter;
  ASSIGN_OR_RETURN(charter.rules, DecodeRules(in.rules()), "rules");
  const bool negative =
      in.round() < 0 || in.restarts() < 0 || in.restarts_since_step() < 0 || in.losses() < 0;
  if (negative) return absl::InvalidArgumentError("a number is negative");
  if (in.has_round()) charter.round = Round(in.round());
  charter.restarts = in.restarts();
  charter.furthest =
      FurthestStep::From({.step = in.has_furthest_step() ? std::optional(in.furthest_step()) : std::nullopt,
                          .further = in.further(),
                          .restarts = in.restarts_since_step()});
  charter.hosts = HostFailures::From(std::map<std::string, int>(in.failures().begin(), in.failures().end()));
  charter.losses =
      LossStreak::From(in.losses(), in.has_loss_step() ? std::optional(in.loss_step()) : std::nullopt);
  charter.electorate.insert(in.electorate().begin(), in.electorate().end());
  charter.coordinator_host = in.coordinator_host();
  charter.coordinator_node = NodeId(in.coordinator_node());
  charter.coordinator_token = in.coordinator_token();
  if (in.has_expected())
    charter.expected_hosts.emplace(in.expected().host().begin(), in.expected().host().end());
  for (const auto& [rank, why] : in.drains()) charter.drains[GroupRank(rank)] = why;
  if (in.has_end()) charter.end = Charter::End{DecodeDismissal(in.end().outcome()), in.end().why()};
  return charter;
}

proto::JobCharter Encode(absl::string_view run_id, const Charter& charter) {
  proto::JobCharter out;
  out.set_format(kFormat);
  out.set_run_id(std::string(run_id));
  EncodeRules(charter.rules, *out.mutable_rules());
  if (charter.round) out.set_round(charter.round->value());
  out.set_restarts(charter.restarts);
  const FurthestStep::Parts furthest = charter.furthest.parts();
  if (furthest.step) out.set_furthest_step(*furthest.step);
  out.set_further(furthest.further);
  out.set_restarts_since_step(furthest.restarts);
  for (const auto& [host, failures] : charter.hosts.all()) (*out.mutable_failures())[host] = failures;
  out.set_losses(charter.losses.count());
  if (charter.losses.step()) out.set_loss_step(*charter.losses.step());
  for (const std::string& host : charter.electorate) out.add_electorate(host);
  out.set_coordinator_host(charter.coordinator_host);
  out.set_coordinator_node(charter.coordinator_node.value());
  out.set_coordinator_token(charter.coordinator_token);
  if (charter.expected_hosts) {
    out.mutable_expected();
    for (const std::string& host : *charter.expected_hosts) out.mutable_expected()->add_host(host);
  }
  for (const auto& [rank, why] : charter.drains) (*out.mutable_drains())[rank.value()] = why;
  if (charter.end) {
    out.mutable_end()->set_outcome(EncodeDismissal(charter.end->outcome));
    out.mutable_end()->set_why(charter.end->why);
  }
  return out;
}

}  // namespace

std::string EncodeCharter(absl::string_view run_id, const Charter& charter) {
  std::string encoded;
  google::protobuf::util::MessageToJsonString(Encode(run_id, charter), &encoded).ok();  // fails for Any only
  return encoded;
}

std::string CharterBytes(const Charter& charter) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);  // sorts maps
    Encode("", charter).SerializeToCodedStream(&out);
  }
  return bytes;
}

absl::StatusOr<Charter> DecodeCharter(absl::string_view run_id, absl::string_view encoded) {
  proto::JobCharter in;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // an incompatible charter has another format
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(encoded), &in, options);
  if (!parsed.ok()) return NotACharter(encoded, std::string(parsed.message()));
  if (in.format() == 0) return NotACharter(encoded, "no format");
  if (in.format() != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("the charter of the job has format ", in.format(),
                                                      ", and this ddprun knows ", kFormat,
                                                      ": start all nodes with the same version of ddprun"));
  }
  if (in.run_id() != run_id) {
    return absl::InvalidArgumentError(absl::StrCat("the charter in the register is that of job ", in.run_id(),
                                                   ", not of ", run_id, ": give each job its own --rdzv-id"));
  }
  absl::StatusOr<Charter> charter = Decode(in);
  if (!charter.ok()) return NotACharter(encoded, charter.status().message());
  return charter;
}

}  // namespace ddprun
