#include "rendezvous/core/kv_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// Estimated overhead of a table entry.
constexpr uint64_t kEntryBytes = 96;

uint64_t Cost(absl::string_view key, absl::string_view value) {
  return key.size() + value.size() + kEntryBytes;
}

// Parses text like strtoll in base 10: whitespace, an optional sign, digits. Ignores the rest of the text.
// Returns nullopt if there are no digits.
std::optional<int64_t> ParsePrefix(absl::string_view text) {
  size_t i = 0;
  while (i < text.size() && absl::ascii_isspace(static_cast<unsigned char>(text[i]))) ++i;
  const bool negative = i < text.size() && text[i] == '-';
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  const size_t first = i;
  // Accumulates a negative number, because the negative range is larger by one. Clamps out-of-range numbers.
  int64_t n = 0;
  for (; i < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[i])); ++i) {
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, text[i] - '0', &n)) {
      return negative ? INT64_MIN : INT64_MAX;
    }
  }
  if (i == first) return std::nullopt;
  if (negative) return n;
  return n == INT64_MIN ? INT64_MAX : -n;
}

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

}  // namespace

KvStore::KvStore(const KvLimits& limits) : limits_(limits) {}

absl::Status KvStore::Reserve(uint64_t more, absl::string_view what) const {
  if (more <= limits_.max_bytes && bytes_ <= limits_.max_bytes - more) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the store is full: ", bytes_, " of ", limits_.max_bytes,
                                                   " bytes are used, ", what, " needs ", more, " more"));
}

absl::Status KvStore::Charge(uint64_t bytes, absl::string_view what) {
  RETURN_IF_ERROR(Reserve(bytes, what));
  bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status KvStore::Put(absl::string_view key, absl::string_view value) {
  if (const auto it = values_.find(key); it != values_.end()) return Replace(it->second, value, "SET");
  RETURN_IF_ERROR(Reserve(Cost(key, value), "SET"));
  values_.emplace(key, value);
  bytes_ += Cost(key, value);
  return absl::OkStatus();
}

absl::Status KvStore::Replace(std::string& old, absl::string_view value, absl::string_view what) {
  if (value.size() > old.size()) RETURN_IF_ERROR(Reserve(value.size() - old.size(), what));
  bytes_ = bytes_ - old.size() + value.size();
  // Frees the excess capacity when a value shrinks, because the limit counts sizes, not capacities.
  if (old.capacity() > 2 * value.size() + kEntryBytes) std::string().swap(old);
  old.assign(value.data(), value.size());
  return absl::OkStatus();
}

absl::Status KvStore::Set(absl::string_view key, absl::string_view value, Woken* woken) {
  RETURN_IF_ERROR(Put(key, value));
  WakeAll(key, woken);
  return absl::OkStatus();
}

absl::Status KvStore::MultiSet(absl::Span<const Pair> pairs, Woken* woken) {
  uint64_t more = 0;
  for (const Pair& pair : pairs) {
    const auto it = values_.find(pair.key);
    if (it == values_.end()) {
      more += Cost(pair.key, pair.value);
    } else if (pair.value.size() > it->second.size()) {
      more += pair.value.size() - it->second.size();
    }
  }
  RETURN_IF_ERROR(Reserve(more, "MULTI_SET"));
  for (const Pair& pair : pairs) {
    RETURN_IF_ERROR(Set(pair.key, pair.value, woken));
  }
  return absl::OkStatus();
}

absl::Status KvStore::Append(absl::string_view key, absl::string_view value, Woken* woken) {
  const auto it = values_.find(key);
  if (it == values_.end()) return Set(key, value, woken);
  RETURN_IF_ERROR(Reserve(value.size(), "APPEND"));
  it->second.append(value.data(), value.size());
  bytes_ += value.size();
  WakeAll(key, woken);
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> KvStore::CompareSet(absl::string_view key, absl::string_view expected,
                                                      absl::string_view desired, Woken* woken) {
  const auto it = values_.find(key);
  if (it == values_.end() ? !expected.empty() : it->second != expected) {
    return it == values_.end() ? expected : absl::string_view(it->second);
  }
  RETURN_IF_ERROR(Set(key, desired, woken));
  return desired;
}

absl::StatusOr<int64_t> KvStore::Add(absl::string_view key, int64_t delta, Woken* woken) {
  const auto it = values_.find(key);
  if (it == values_.end()) {
    RETURN_IF_ERROR(Set(key, absl::AlphaNum(delta).Piece(), woken));
    return delta;
  }
  const std::optional<int64_t> old = ParsePrefix(it->second);
  if (!old) {
    return absl::InvalidArgumentError(
        absl::StrCat("ADD to key \"", absl::CHexEscape(key), "\": its value is not a number: \"",
                     absl::CHexEscape(absl::string_view(it->second).substr(0, 40)), "\""));
  }
  const int64_t sum = WrappingAdd(*old, delta);
  RETURN_IF_ERROR(Replace(it->second, absl::AlphaNum(sum).Piece(), "ADD"));
  WakeAll(key, woken);
  return sum;
}

absl::string_view KvStore::Get(absl::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? absl::string_view() : it->second;
}

void KvStore::ForEachKey(absl::FunctionRef<void(absl::string_view key)> visit) const {
  std::vector<absl::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  for (const absl::string_view key : keys) visit(key);
}

bool KvStore::DeleteKey(absl::string_view key) {
  const auto it = values_.find(key);
  if (it == values_.end()) return false;
  bytes_ -= Cost(key, it->second);
  values_.erase(it);
  return true;
}

absl::Status KvStore::QueuePush(absl::string_view name, absl::string_view item, Woken* woken) {
  RETURN_IF_ERROR(Reserve(Cost(name, item), "QUEUE_PUSH"));
  queues_[name].emplace_back(item);
  bytes_ += Cost(name, item);
  if (const auto line = lines_.find(name); line != lines_.end()) Arrived(*line, woken);
  return absl::OkStatus();
}

bool KvStore::QueuePop(absl::string_view name, std::string* item) {
  const auto it = queues_.find(name);
  if (it == queues_.end()) return false;
  *item = std::move(it->second.front());
  it->second.pop_front();
  bytes_ -= Cost(name, *item);
  if (it->second.empty()) queues_.erase(it);
  return true;
}

int64_t KvStore::QueueLen(absl::string_view name) const {
  const auto it = queues_.find(name);
  return it == queues_.end() ? 0 : static_cast<int64_t>(it->second.size());
}

bool KvStore::Ready(absl::string_view key) const { return values_.contains(key) || queues_.contains(key); }

bool KvStore::Ready(absl::Span<const absl::string_view> keys) const {
  for (const absl::string_view key : keys) {
    if (!Ready(key)) return false;
  }
  return true;
}

absl::StatusOr<bool> KvStore::Wait(ConnId conn, absl::Span<const absl::string_view> keys) {
  uint64_t more = 0;
  for (const absl::string_view key : keys) {
    if (!Ready(key)) more += Cost(key, "");
  }
  RETURN_IF_ERROR(Reserve(more, "WAIT"));
  Forget(conn);
  if (more == 0) return true;
  for (const absl::string_view key : keys) {
    if (!Ready(key)) Join(conn, key);
  }
  return false;
}

absl::StatusOr<bool> KvStore::Barrier(ConnId conn, absl::string_view key, int64_t world_size, Woken* woken) {
  // First checks that the store has room for the count and the wait. If a caller were counted but could not
  // wait, the barrier would open too early.
  RETURN_IF_ERROR(Reserve(2 * Cost(key, "") + 20, "BARRIER"));
  const auto it = values_.find(key);
  const bool created = it == values_.end();
  int64_t count = 1;
  if (!created) {
    const std::optional<int64_t> old = ParsePrefix(it->second);
    if (!old) {
      return absl::InvalidArgumentError(
          absl::StrCat("BARRIER at key \"", absl::CHexEscape(key), "\": its value is not a number"));
    }
    count = WrappingAdd(*old, 1);
  }
  RETURN_IF_ERROR(Put(key, absl::AlphaNum(count).Piece()));
  Forget(conn);
  // A connection that began to wait before the key existed waits for the key to exist, not for the count.
  if (created || count >= world_size) WakeAll(key, woken);
  if (count >= world_size) return true;
  Join(conn, key);
  return false;
}

void KvStore::Join(ConnId conn, absl::string_view key) {
  auto line = lines_.find(key);
  if (line == lines_.end()) line = lines_.emplace(key, Line()).first;
  Waits& waits = waits_[conn];
  line->second.push_back({conn, waits.size()});
  waits.push_back({&*line, std::prev(line->second.end())});
  bytes_ += Cost(key, "");
}

void KvStore::WakeAll(absl::string_view key, Woken* woken) {
  if (lines_.empty()) return;
  const auto it = lines_.find(key);
  if (it == lines_.end()) return;
  for (size_t left = it->second.size(); left > 0; --left) Arrived(*it, woken);
}

// The key of `line` has become ready. Removes the first Place from `line`. Ends the wait of the Place's
// connection if no other key is missing.
void KvStore::Arrived(Lines::value_type& line, Woken* woken) {
  const Place place = line.second.front();
  const auto it = waits_.find(place.conn);
  Waits& waits = it->second;
  const Missing missing = waits[place.index];
  waits[place.index] = waits.back();
  waits[place.index].place->index = place.index;
  waits.pop_back();
  LeaveLine(missing);
  if (waits.empty()) {
    waits_.erase(it);
    woken->push_back(place.conn);
  }
}

void KvStore::Forget(ConnId conn) {
  const auto it = waits_.find(conn);
  if (it == waits_.end()) return;
  for (const Missing& missing : it->second) LeaveLine(missing);
  waits_.erase(it);
}

void KvStore::LeaveLine(Missing missing) {
  Lines::value_type& line = *missing.line;
  bytes_ -= Cost(line.first, "");
  line.second.erase(missing.place);
  if (line.second.empty()) lines_.erase(lines_.find(line.first));
}

}  // namespace ddprun
