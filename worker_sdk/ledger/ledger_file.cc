#include "worker_sdk/ledger/ledger_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written in memory layout");

constexpr std::string_view kMagic = "ddpledg\n";
constexpr uint32_t kVersion = 1;

// The file consists of a Header and any number of Records. The structs have no padding.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t entry_bytes;
};
struct Record {
  int64_t job, round, restart_count, world_size, begin_us;
  int64_t spent_us[kNumActivities];
  int64_t first_step, last_step;
};
static_assert(sizeof(Header) == 16 && sizeof(Record) == 88);

Record Encode(const LedgerEntry& e) {
  Record r{.job = e.job,
           .round = e.round,
           .restart_count = e.restart_count,
           .world_size = e.world_size,
           .begin_us = e.begin_us,
           .spent_us = {},
           .first_step = e.first_step,
           .last_step = e.last_step};
  std::copy(e.spent_us.begin(), e.spent_us.end(), r.spent_us);
  return r;
}

LedgerEntry Decode(const Record& r) {
  LedgerEntry e{.job = r.job,
                .round = r.round,
                .restart_count = r.restart_count,
                .world_size = r.world_size,
                .begin_us = r.begin_us,
                .first_step = r.first_step,
                .last_step = r.last_step};
  std::copy(std::begin(r.spent_us), std::end(r.spent_us), e.spent_us.begin());
  return e;
}

// The file has no checksums, so entries are checked for plausibility. An entry of zeros, which a power
// failure may leave, is not plausible.
bool IsPlausible(const LedgerEntry& e) {
  constexpr int64_t kMost = int64_t{1} << 52, kMostSpentUs = int64_t{1} << 46;  // two years
  const auto sane = [](int64_t n) { return n >= 0 && n < kMost; };
  const auto sane_time = [](int64_t us) { return us >= 0 && us < kMostSpentUs; };
  return sane(e.round) && sane(e.restart_count) && e.world_size >= 1 && sane(e.begin_us) &&
         std::all_of(e.spent_us.begin(), e.spent_us.end(), sane_time) && sane(e.last_step + 1) &&
         e.first_step >= kNoStep && e.first_step <= e.last_step;
}

// Appends the entries in `bytes` to `entries` and ignores a torn entry at the end. Returns why `bytes` is not
// a valid ledger, or an empty string if it is valid.
std::string Parse(std::string_view bytes, std::vector<LedgerEntry>& entries) {
  Header header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof(header)));
  if (bytes.size() < sizeof(header) || std::string_view(header.magic, sizeof(header.magic)) != kMagic) {
    return "not a ledger";
  }
  if (header.version != kVersion || header.entry_bytes != sizeof(Record)) {
    return StrCat("version ", header.version, ", but this program supports version ", kVersion);
  }
  bytes.remove_prefix(sizeof(header));
  for (; bytes.size() >= sizeof(Record); bytes.remove_prefix(sizeof(Record))) {
    Record record;
    std::memcpy(&record, bytes.data(), sizeof(record));
    entries.push_back(Decode(record));
    if (!IsPlausible(entries.back())) return StrCat("entry ", entries.size(), " is implausible");
  }
  return "";
}

Status PWriteAll(int fd, const std::string& path, const void* data, size_t size, off_t offset) {
  ssize_t n;
  do {
    n = pwrite(fd, data, size, offset);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(size)) return OkStatus();
  return FileError("cannot write", path, n < 0 ? errno : ENOSPC);
}

}  // namespace

StatusOr<LedgerFile> LedgerFile::Open(const std::string& path) {
  StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok() && !IsNotFound(bytes.status())) return bytes.status();
  std::vector<LedgerEntry> earlier;
  std::string remark;
  // An empty file is valid: the disk may have been full when the file was created.
  if (bytes.ok() && !bytes->empty()) {
    if (const std::string why = Parse(*bytes, earlier); !why.empty()) {
      const std::string backup = path + ".old";
      if (rename(path.c_str(), backup.c_str()) != 0) return FileError("cannot rename", path, errno);
      remark = StrCat(path, ": ", why, ": moved to ", backup, ", starting a new ledger");
      earlier.clear();
    }
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot open", path, errno);
  LedgerFile file(path, fd);
  file.earlier_ = std::move(earlier);
  file.remark_ = std::move(remark);
  return file;
}

LedgerFile::LedgerFile(LedgerFile&& other) noexcept
    : path_(other.path_),
      fd_(std::exchange(other.fd_, -1)),
      earlier_(std::move(other.earlier_)),
      remark_(std::move(other.remark_)) {}

LedgerFile::~LedgerFile() {
  if (fd_ >= 0) close(fd_);
}

Status LedgerFile::Write(const LedgerEntry& entry) {
  if (earlier_.empty()) {
    // Write the header and the first entry in one call, so that no file contains only a header.
    struct {
      Header header;
      Record record;
    } first = {{.magic = {}, .version = kVersion, .entry_bytes = sizeof(Record)}, Encode(entry)};
    static_assert(sizeof(first) == sizeof(Header) + sizeof(Record));
    std::memcpy(first.header.magic, kMagic.data(), kMagic.size());
    return PWriteAll(fd_, path_, &first, sizeof(first), 0);
  }
  const Record record = Encode(entry);
  return PWriteAll(fd_, path_, &record, sizeof(record),
                   static_cast<off_t>(sizeof(Header) + earlier_.size() * sizeof(Record)));
}

}  // namespace ddprun
