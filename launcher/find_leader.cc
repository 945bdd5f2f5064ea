#include "launcher/find_leader.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/time.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "launcher/config/launch_config.h"
#include "launcher/config/rdzv_conf.h"
#include "launcher/job_register.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/charter/lead.h"
#include "rendezvous/coordinator/charter_codec.h"

namespace ddprun {
namespace {

constexpr Duration kLimit = seconds(10);

absl::StatusOr<RegisterRecord> ReadRecord(const LaunchConfig& config) {
  boost::asio::io_context io(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<CharterRegister> charter_register, OpenJobRegister(io, config));
  std::optional<absl::StatusOr<RegisterRecord>> record;
  charter_register->Read(kLimit, [&](absl::StatusOr<RegisterRecord> read) {
    record = std::move(read);
    io.stop();
  });
  const auto work = boost::asio::make_work_guard(io);
  io.run();
  return *std::move(record);
}

}  // namespace

absl::StatusOr<Endpoint> FindLeaderOnEtcd(const RegisterQuery& query) {
  LaunchConfig config;
  config.backend = Backend::kEtcd;
  config.run_id = query.job;
  ASSIGN_OR_RETURN(config.etcd_endpoints, ParseEtcdEndpoints(query.rdzv_endpoint), "--rdzv-endpoint");
  ASSIGN_OR_RETURN(config.rdzv, ParseRdzvConf(query.rdzv_conf, Backend::kEtcd, config.warnings),
                   "--rdzv-conf");
  ASSIGN_OR_RETURN(const RegisterRecord record, ReadRecord(config));
  if (!record.exists) {
    return absl::NotFoundError(absl::StrCat("there is no job ", query.job, " on ", NameOfRegister(config)));
  }
  ASSIGN_OR_RETURN(const Lead lead, DecodeLead(record.lead));
  switch (lead.state) {
    case Lead::State::kLeads:
      break;
    case Lead::State::kLeft:
      return absl::UnavailableError(absl::StrCat("job ", query.job, " has no coordinator at present"));
    case Lead::State::kClosed: {
      ASSIGN_OR_RETURN(const Charter charter, DecodeCharter(query.job, record.charter));
      return absl::FailedPreconditionError(
          absl::StrCat("job ", query.job, " is over: ", charter.end.value_or(Charter::End()).text()));
    }
  }
  return ParseEndpoint(lead.address, -1);
}

}  // namespace ddprun
