// The ledger on disk; see docs/ledger_format.md. Each process that leads a round appends one entry and
// overwrites it with each later write. Written data survives a SIGKILL of the process, because the data is in
// the kernel's page cache.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/ledger/ledger.h"

namespace ddprun {

//   Errors:  those of the system. The messages contain the file's name.
//   Threads: one caller at a time.
class LedgerFile {
 public:
  // Opens or creates `path`.
  static StatusOr<LedgerFile> Open(const std::string& path);
  LedgerFile(LedgerFile&& other) noexcept;
  LedgerFile& operator=(LedgerFile&&) = delete;
  ~LedgerFile();

  // The entries of earlier processes.
  [[nodiscard]] const std::vector<LedgerEntry>& earlier() const { return earlier_; }
  // The reason why an existing file was renamed to <path>.old and replaced with a new ledger: the file was
  // damaged or was not a ledger of this version. Empty if no file was replaced.
  [[nodiscard]] const std::string& remark() const { return remark_; }

  // Writes `entry` after the entries of earlier processes, and overwrites this process's previous entry.
  // Makes one system call, which takes about a microsecond. Does not wait for the disk.
  //   Errors: kResourceExhausted: the disk is full; a later call may succeed.
  Status Write(const LedgerEntry& entry);

 private:
  LedgerFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  int fd_;
  std::vector<LedgerEntry> earlier_;
  std::string remark_;
};

}  // namespace ddprun
