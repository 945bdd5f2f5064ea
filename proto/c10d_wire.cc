#include "proto/c10d_wire.h"

#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ddprun::c10d {
namespace {

// PyTorch sends numbers in host byte order. All supported hosts are little-endian.
static_assert(std::endian::native == std::endian::little);

using F = Field;

// The entries are in the order of Op.
constexpr OpInfo kOps[] = {
    {Op::kValidate, "VALIDATE", {F::kU32}, 0, -1, -1},
    {Op::kSet, "SET", {F::kKey, F::kValue}, 1, 0, 0},
    {Op::kCompareSet, "COMPARE_SET", {F::kKey, F::kValue, F::kValue}, 2, 1, 1},
    {Op::kGet, "GET", {F::kKey}, 3, 2, 2},
    {Op::kAdd, "ADD", {F::kKey, F::kI64}, 4, 3, 3},
    {Op::kCheck, "CHECK", {F::kKeys}, 5, 4, 4},
    {Op::kWait, "WAIT", {F::kKeys}, 6, 5, 5},
    {Op::kNumKeys, "GETNUMKEYS", {}, 7, 6, 6},
    {Op::kWatchKey, "WATCH_KEY", {F::kKey}, -1, 7, -1},
    {Op::kDeleteKey, "DELETE_KEY", {F::kKey}, 8, 8, 7},
    {Op::kAppend, "APPEND", {F::kKey, F::kValue}, 9, -1, 8},
    {Op::kMultiGet, "MULTI_GET", {F::kKeys}, 10, -1, 9},
    {Op::kMultiSet, "MULTI_SET", {F::kPairs}, 11, -1, 10},
    {Op::kCancelWait, "CANCEL_WAIT", {}, 12, -1, 11},
    {Op::kPing, "PING", {F::kU32}, 13, -1, -1},
    {Op::kQueuePush, "QUEUE_PUSH", {F::kKey, F::kValue}, 14, -1, -1},
    {Op::kQueuePop, "QUEUE_POP", {F::kKey}, 15, -1, -1},
    {Op::kQueueLen, "QUEUE_LEN", {F::kKey}, 16, -1, -1},
    {Op::kListKeys, "LIST_KEYS", {}, 17, -1, -1},
    {Op::kBarrier, "BARRIER", {F::kKey, F::kI64}, 18, -1, -1},
};

constexpr bool InOrderOfOp() {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].op != static_cast<Op>(i)) return false;
  }
  return std::size(kOps) == static_cast<size_t>(Op::kBarrier) + 1;
}
static_assert(InOrderOfOp());

constexpr int8_t Code(const OpInfo& info, Dialect dialect) {
  switch (dialect) {
    case Dialect::kVersioned:
      return info.code_versioned;
    case Dialect::kA:
      return info.code_a;
    case Dialect::kB:
      return info.code_b;
    case Dialect::kLegacy:
      return info.code_b == kAmbiguousLegacyCode ? -1 : info.code_b;
    case Dialect::kUnknown:
      break;
  }
  return -1;
}

constexpr int kNumCodes = 32;
using OpsByCode = std::array<int8_t, kNumCodes>;  // indexes into kOps; -1 if the opcode has no operation

constexpr OpsByCode ByCode(Dialect dialect) {
  OpsByCode by_code{};
  by_code.fill(-1);
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (const int8_t code = Code(kOps[i], dialect); code >= 0) by_code[code] = static_cast<int8_t>(i);
  }
  return by_code;
}

// Indexed by Dialect.
constexpr OpsByCode kByCode[] = {ByCode(Dialect::kUnknown), ByCode(Dialect::kVersioned),
                                 ByCode(Dialect::kLegacy), ByCode(Dialect::kA), ByCode(Dialect::kB)};

template <typename T>
void AppendRaw(T n, std::string* out) {
  char bytes[sizeof n];
  std::memcpy(bytes, &n, sizeof n);
  out->append(bytes, sizeof n);
}

void AppendKeys(absl::Span<const absl::string_view> keys, std::string* out) {
  AppendI64(static_cast<int64_t>(keys.size()), out);
  for (const absl::string_view key : keys) AppendBytes(key, out);
}

// Writes the fields of one request in the order that OpInfo specifies.
struct FieldWriter {
  std::string* out;

  void operator()(const Ping& r) const { AppendU32(r.nonce, out); }
  void operator()(const Set& r) const { KeyAndValue(r.key, r.value); }
  void operator()(const CompareSet& r) const {
    KeyAndValue(r.key, r.expected);
    AppendBytes(r.desired, out);
  }
  void operator()(const Get& r) const { AppendBytes(r.key, out); }
  void operator()(const Add& r) const {
    AppendBytes(r.key, out);
    AppendI64(r.delta, out);
  }
  void operator()(const Check& r) const { AppendKeys(r.keys, out); }
  void operator()(const Wait& r) const { AppendKeys(r.keys, out); }
  void operator()(const CancelWait&) const {}
  void operator()(const NumKeys&) const {}
  void operator()(const DeleteKey& r) const { AppendBytes(r.key, out); }
  void operator()(const Append& r) const { KeyAndValue(r.key, r.value); }
  void operator()(const MultiGet& r) const { AppendKeys(r.keys, out); }
  void operator()(const MultiSet& r) const {
    AppendI64(static_cast<int64_t>(r.pairs.size()), out);
    for (const KeyValue& pair : r.pairs) KeyAndValue(pair.key, pair.value);
  }
  void operator()(const QueuePush& r) const { KeyAndValue(r.key, r.value); }
  void operator()(const QueuePop& r) const { AppendBytes(r.key, out); }
  void operator()(const QueueLen& r) const { AppendBytes(r.key, out); }
  void operator()(const ListKeys&) const {}
  void operator()(const Barrier& r) const {
    AppendBytes(r.key, out);
    AppendI64(r.world_size, out);
  }

 private:
  void KeyAndValue(absl::string_view key, absl::string_view value) const {
    AppendBytes(key, out);
    AppendBytes(value, out);
  }
};

}  // namespace

const OpInfo& Info(Op op) { return kOps[static_cast<size_t>(op)]; }

std::optional<Op> OpOfCode(Dialect dialect, uint8_t code) {
  if (code >= kNumCodes) return std::nullopt;
  const int8_t index = kByCode[static_cast<size_t>(dialect)][code];
  if (index < 0) return std::nullopt;
  return kOps[index].op;
}

Op OpOf(const Request& request) {
  // The entries are in the order of the alternatives of Request.
  static constexpr Op kOfIndex[] = {
      Op::kPing,     Op::kSet,        Op::kCompareSet, Op::kGet,       Op::kAdd,      Op::kCheck,
      Op::kWait,     Op::kCancelWait, Op::kNumKeys,    Op::kDeleteKey, Op::kAppend,   Op::kMultiGet,
      Op::kMultiSet, Op::kQueuePush,  Op::kQueuePop,   Op::kQueueLen,  Op::kListKeys, Op::kBarrier};
  static_assert(std::size(kOfIndex) == std::variant_size_v<Request>);
  return kOfIndex[request.index()];
}

void AppendValidate(std::string* out) {
  AppendU8(static_cast<uint8_t>(Info(Op::kValidate).code_versioned), out);
  AppendU32(kValidateMagic, out);
}

void AppendRequest(const Request& request, Dialect dialect, std::string* out) {
  const OpInfo& info = Info(OpOf(request));
  const int8_t code = Code(info, dialect);
  if (code < 0) {
    std::fprintf(stderr, "c10d: dialect %d has no %s\n", static_cast<int>(dialect), info.name.data());
    std::abort();
  }
  AppendU8(static_cast<uint8_t>(code), out);
  std::visit(FieldWriter{out}, request);
}

void AppendU8(uint8_t n, std::string* out) { out->push_back(static_cast<char>(n)); }
void AppendU32(uint32_t n, std::string* out) { AppendRaw(n, out); }
void AppendI64(int64_t n, std::string* out) { AppendRaw(n, out); }

void AppendBytes(absl::string_view bytes, std::string* out) {
  AppendI64(static_cast<int64_t>(bytes.size()), out);
  out->append(bytes.data(), bytes.size());
}

uint32_t ReadU32(const char* p) {
  uint32_t n;
  std::memcpy(&n, p, sizeof n);
  return n;
}

int64_t ReadI64(const char* p) {
  int64_t n;
  std::memcpy(&n, p, sizeof n);
  return n;
}

}  // namespace ddprun::c10d
