// The ledger on disk: docs/ledger_format.md. Each process that leads a round appends an entry of its own and
// keeps overwriting it; what was written stays when the process is killed, for it is the system's then.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_sdk/ledger/ledger.h"

namespace ddprun {

//   Errors:  as the system says, naming the file.
//   Threads: one caller at a time.
class LedgerFile {
 public:
  // Opens `path` or makes it.
  static absl::StatusOr<LedgerFile> Open(const std::string& path);
  LedgerFile(LedgerFile&& other) noexcept;
  LedgerFile& operator=(LedgerFile&&) = delete;
  ~LedgerFile();

  // Those of earlier processes.
  [[nodiscard]] const std::vector<LedgerEntry>& earlier() const { return earlier_; }
  // Why the ledger begins anew: the file that was there is none of this version, or damaged, and was moved
  // aside. Empty: it goes on.
  [[nodiscard]] const std::string& remark() const { return remark_; }

  // Puts `entry` behind the earlier ones, over this process's own before. One system call of about a
  // microsecond, without waiting for the disk.
  //   Errors: kResourceExhausted: the disk is full; a later call may do.
  absl::Status Write(const LedgerEntry& entry);

 private:
  LedgerFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  int fd_;
  std::vector<LedgerEntry> earlier_;
  std::string remark_;
};

}  // namespace ddprun
