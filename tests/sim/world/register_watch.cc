#include "tests/sim/world/register_watch.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace ddprun::sim {

class RegisterWatch::Watched final : public CharterRegister {
 public:
  Watched(RegisterWatch* watch, std::unique_ptr<CharterRegister> inner)
      : watch_(*watch), inner_(std::move(inner)) {}

  void Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) override {
    inner_->Read(limit, [&watch = watch_, known = watch_.record_.version,
                         done = std::move(done)](absl::StatusOr<RegisterRecord> record) {
      if (record.ok()) watch.Returned(*record, known);
      done(std::move(record));
    });
  }

  void Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
            Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) override {
    inner_->Swap(expected, std::move(lead), std::move(charter), limit,
                 [&watch = watch_, known = watch_.record_.version,
                  done = std::move(done)](absl::StatusOr<SwapResult> result) {
                   if (result.ok()) watch.Returned(result->current, known);
                   done(std::move(result));
                 });
  }

 private:
  RegisterWatch& watch_;
  const std::unique_ptr<CharterRegister> inner_;
};

std::unique_ptr<CharterRegister> RegisterWatch::Watch(std::unique_ptr<CharterRegister> inner) {
  return std::make_unique<Watched>(this, std::move(inner));
}

void RegisterWatch::Returned(const RegisterRecord& record, int64_t known) {
  if (!record.exists) {
    if (known > 0) broken_(absl::StrCat("a call returns no record, although version ", known, " was known"));
    return;
  }
  if (record.version < known) {
    return broken_(
        absl::StrCat("a call returns version ", record.version, ", although version ", known, " was known"));
  }
  if (record.version == record_.version &&
      (record.lead != record_.lead || record.charter != record_.charter)) {
    return broken_(absl::StrCat("version ", record.version, " of the register has two records"));
  }
  if (record.version <= record_.version) return;
  const RegisterRecord before = std::exchange(record_, record);
  observer_(before, record_);
}

}  // namespace ddprun::sim
