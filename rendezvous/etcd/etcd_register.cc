#include "rendezvous/etcd/etcd_register.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/etcd.grpc.pb.h"

namespace ddprun {
namespace {

namespace pb = etcdserverpb;

// Time limit for extending the lease.
constexpr Duration kKeepLimit = seconds(5);
// How often one swap grants a lease. The lease may end between its grant and the swap only if its TTL is tiny.
constexpr int kMaxGrants = 3;

TimePoint Now() { return std::chrono::steady_clock::now(); }

// FNV-1a: the same in all versions of this program.
int64_t LeaseId(const std::string& keys) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char byte : keys) hash = (hash ^ byte) * 0x100000001b3;
  return static_cast<int64_t>(hash >> 1) | 1;  // positive; 0 means none
}

int64_t TtlSeconds(Duration ttl) { return std::chrono::ceil<seconds>(ttl).count(); }

void AddRange(const std::string& key, pb::RequestOp* op) { op->mutable_request_range()->set_key(key); }

void AddPut(const std::string& key, std::string value, int64_t lease, pb::RequestOp* op) {
  op->mutable_request_put()->set_key(key);
  op->mutable_request_put()->set_value(std::move(value));
  op->mutable_request_put()->set_lease(lease);
}

// A unary RPC: its messages.
template <typename Service, typename Request, typename Reply>
struct Unary {
  Request request;
  Reply reply;
  std::unique_ptr<typename Service::Stub> stub;
};
using Txn = Unary<pb::KV, pb::TxnRequest, pb::TxnResponse>;
using Grant = Unary<pb::Lease, pb::LeaseGrantRequest, pb::LeaseGrantResponse>;

EtcdRpc StartTxn(std::shared_ptr<Txn> txn) {
  return [txn](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
               std::function<void(grpc::Status)> done) {
    txn->stub = pb::KV::NewStub(channel);
    txn->stub->async()->Txn(context, &txn->request, &txn->reply, std::move(done));
  };
}

EtcdRpc StartGrant(std::shared_ptr<Grant> grant) {
  return [grant](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                 std::function<void(grpc::Status)> done) {
    grant->stub = pb::Lease::NewStub(channel);
    grant->stub->async()->LeaseGrant(context, &grant->request, &grant->reply, std::move(done));
  };
}

// One exchange on a stream of LeaseKeepAlive. Destroys itself.
class KeepAlive final
    : public grpc::ClientBidiReactor<pb::LeaseKeepAliveRequest, pb::LeaseKeepAliveResponse> {
 public:
  KeepAlive(int64_t lease, const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
            std::function<void(grpc::Status)> done)
      : stub_(pb::Lease::NewStub(channel)), done_(std::move(done)) {
    request_.set_id(lease);
    stub_->async()->LeaseKeepAlive(context, this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&reply_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    answered_ = answered_ || ok;
    if (ok) StartRead(&reply_);  // until the member ends the stream
  }
  void OnDone(const grpc::Status& status) override {
    const auto done = std::move(done_);
    const grpc::Status result = answered_ ? grpc::Status::OK : status;
    delete this;
    done(result);
  }

  const std::unique_ptr<pb::Lease::Stub> stub_;
  std::function<void(grpc::Status)> done_;
  pb::LeaseKeepAliveRequest request_;
  pb::LeaseKeepAliveResponse reply_;
  bool answered_ = false;
};

absl::Status NotEtcd() {
  return absl::FailedPreconditionError(
      "etcd: the answer to a transaction has not the form that the v3 API defines");
}

// The record in the answer to a transaction that ranges over both keys.
absl::StatusOr<RegisterRecord> DecodeRecord(pb::TxnResponse& reply) {
  if (reply.responses_size() != 2 || !reply.responses(0).has_response_range() ||
      !reply.responses(1).has_response_range() || !reply.has_header())
    return NotEtcd();
  auto& leads = *reply.mutable_responses(0)->mutable_response_range()->mutable_kvs();
  auto& charters = *reply.mutable_responses(1)->mutable_response_range()->mutable_kvs();
  if (leads.empty()) return RegisterRecord{.version = reply.header().revision()};
  RegisterRecord record = {.version = leads[0].mod_revision(), .exists = true};
  record.lead = std::move(*leads[0].mutable_value());
  if (!charters.empty()) record.charter = std::move(*charters[0].mutable_value());
  return record;
}

}  // namespace

// One swap.
struct EtcdRegister::Write {
  RegisterRecord expected;
  std::string lead;
  std::optional<std::string> charter;
  TimePoint deadline;
  std::function<void(absl::StatusOr<SwapResult>)> done;
  std::shared_ptr<Txn> txn = std::make_shared<Txn>();
  bool reads_charter = false;  // the last response of a transaction that succeeds is the charter
  int grants = 0;
};

EtcdRegister::EtcdRegister(boost::asio::io_context& io, const EtcdOptions& options)
    : lead_key_(absl::StrCat(EtcdKeys(options), "/lead")),
      charter_key_(absl::StrCat(EtcdKeys(options), "/charter")),
      lease_(LeaseId(EtcdKeys(options))),
      garbage_ttl_(options.garbage_ttl),
      access_(io, options) {}

void EtcdRegister::Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) {
  auto txn = std::make_shared<Txn>();
  AddRange(lead_key_, txn->request.add_success());
  AddRange(charter_key_, txn->request.add_success());
  access_.Call(EtcdAccess::Repeat::kAllowed, Now() + limit, StartTxn(txn),
               [this, txn, done = std::move(done)](const absl::Status& status) {
                 if (!status.ok()) return done(status);
                 absl::StatusOr<RegisterRecord> record = DecodeRecord(txn->reply);
                 if (record.ok()) known_ = {record->version, record->charter};
                 done(std::move(record));
               });
}

void EtcdRegister::Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
                        Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) {
  auto write = std::make_shared<Write>(Write{{.version = expected.version, .exists = expected.exists},
                                             std::move(lead),
                                             std::move(charter),
                                             Now() + limit,
                                             std::move(done)});
  pb::TxnRequest& request = write->txn->request;
  pb::Compare& compare = *request.add_compare();
  compare.set_result(pb::Compare::EQUAL);
  compare.set_key(lead_key_);
  if (expected.exists) {
    compare.set_target(pb::Compare::MOD);
    compare.set_mod_revision(expected.version);
  } else {
    compare.set_target(pb::Compare::CREATE);
    compare.set_create_revision(0);
  }
  AddPut(lead_key_, write->lead, lease_, request.add_success());
  if (write->charter) {
    AddPut(charter_key_, *write->charter, lease_, request.add_success());
  } else if (!expected.exists) {
    // A new record has no charter, also if somebody has removed the other key only.
    request.add_success()->mutable_request_delete_range()->set_key(charter_key_);
  } else if (!known_ || known_->version != expected.version) {
    write->reads_charter = true;
    AddRange(charter_key_, request.add_success());
  } else {
    write->charter = known_->charter;
  }
  AddRange(lead_key_, request.add_failure());
  AddRange(charter_key_, request.add_failure());
  SendWrite(write);
}

void EtcdRegister::SendWrite(const std::shared_ptr<Write>& write) {
  access_.Call(
      EtcdAccess::Repeat::kIfNotDone, write->deadline, StartTxn(write->txn),
      [this, write](const absl::Status& status) {
        if (status.ok()) return Written(write);
        if (!absl::IsNotFound(status)) return write->done(status);
        if (write->grants++ < kMaxGrants) return GrantLease(write);
        write->done(absl::UnavailableError("etcd: the lease of the keys ends as soon as it is granted"));
      });
}

void EtcdRegister::Written(const std::shared_ptr<Write>& write) {
  pb::TxnResponse& reply = write->txn->reply;
  if (!reply.succeeded()) {
    absl::StatusOr<RegisterRecord> record = DecodeRecord(reply);
    if (!record.ok()) return write->done(record.status());
    known_ = {record->version, record->charter};
    return write->done(SwapResult{.swapped = false, .current = *std::move(record)});
  }
  if (reply.header().revision() == 0 || reply.responses_size() != write->txn->request.success_size())
    return write->done(NotEtcd());
  RegisterRecord record = {reply.header().revision(), true, std::move(write->lead)};
  if (write->reads_charter) {
    auto& kvs = *reply.mutable_responses(1)->mutable_response_range()->mutable_kvs();
    if (!kvs.empty()) record.charter = std::move(*kvs[0].mutable_value());
  } else if (write->charter) {
    record.charter = *std::move(write->charter);
  }
  known_ = {record.version, record.charter};
  KeepLease();
  write->done(SwapResult{.swapped = true, .current = std::move(record)});
}

void EtcdRegister::GrantLease(const std::shared_ptr<Write>& write) {
  auto grant = std::make_shared<Grant>();
  grant->request.set_id(lease_);
  grant->request.set_ttl(TtlSeconds(garbage_ttl_));
  access_.Call(EtcdAccess::Repeat::kAllowed, write->deadline, StartGrant(grant),
               [this, write, grant](const absl::Status& status) {
                 // Another process may have granted it, or the answer to a first request was lost.
                 if (status.ok() || absl::StrContains(status.message(), "lease already exists"))
                   return SendWrite(write);
                 write->done(status);
               });
}

void EtcdRegister::KeepLease() {
  const TimePoint now = Now();
  if (kept_ && now - *kept_ < garbage_ttl_ / 3) return;
  kept_ = now;
  access_.Call(
      EtcdAccess::Repeat::kAllowed, now + kKeepLimit,
      [lease = lease_](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                       std::function<void(grpc::Status)> done) {
        new KeepAlive(lease, channel, context, std::move(done));  // NOLINT: destroys itself
      },
      [this](const absl::Status& status) {
        if (!status.ok()) kept_.reset();  // the next write tries again
      });
}

}  // namespace ddprun
