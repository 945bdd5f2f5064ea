// The register of a job as two keys of etcd. docs/decisions/0017-coordinator-failover.md, "The register".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/etcd/etcd_access.h"
#include "rendezvous/etcd/etcd_options.h"

namespace ddprun {

// Both keys are read and written in one transaction. The version of a record is the revision in which the key `lead` was
// written last; each write of the record writes that key. Without a record it is the revision of the store.
//
// The keys have a lease of etcd, whose id follows from the name of the keys, so that all processes use the same one. It is
// granted when a write finds that it does not exist, and extended by those who write. When it ends, etcd removes both keys.
//
// A swap is sent once, unless it was certainly not carried out.
class EtcdRegister final : public CharterRegister {
 public:
  // REQUIRES: at least one endpoint.
  EtcdRegister(boost::asio::io_context& io, const EtcdOptions& options);

  void Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) override;
  void Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
            Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) override;

 private:
  struct Write;

  void SendWrite(const std::shared_ptr<Write>& write);
  void Written(const std::shared_ptr<Write>& write);
  void GrantLease(const std::shared_ptr<Write>& write);
  // Extends the lease, if that is due. Errors are ignored: a write fails if the lease does not exist, and then grants it.
  void KeepLease();

  const std::string lead_key_;
  const std::string charter_key_;
  const int64_t lease_;  // its id
  const Duration garbage_ttl_;
  std::optional<TimePoint> kept_;  // when the lease was extended last by this process
  // The charter of the newest version that is known. A write that leaves the charter need not read it then.
  struct KnownCharter {
    int64_t version = 0;
    std::string charter;
  };
  std::optional<KnownCharter> known_;
  EtcdAccess access_;
};

}  // namespace ddprun
