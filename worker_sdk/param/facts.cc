#include "worker_sdk/param/facts.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// What each rank publishes first.
struct Summary {
  int64_t fault_size = 0;
  int64_t num_facts = 0;
  int64_t encoded_size = 0;
  int64_t digest[2] = {};
  bool operator==(const Summary&) const = default;
};
constexpr int64_t kSummaryElems = sizeof(Summary) / sizeof(int64_t);

// Where a rank differs from rank 0 for the first time.
struct Difference {
  int64_t index = INT64_MAX;  // of the fact; INT64_MAX: nowhere
  int64_t encoded_size = 0;   // of this rank's fact with that index; 0: there is none
};

void AppendText(std::string_view text, std::string* out) {
  const uint64_t size = text.size();
  out->append(reinterpret_cast<const char*>(&size), sizeof size);
  out->append(text);
}

std::string Encode(const Fact& fact) {
  std::string out;
  AppendText(fact.what, &out);
  AppendText(fact.value, &out);
  return out;
}

// Removes a text that AppendText wrote; returns false if there is none.
bool ConsumeText(std::string_view* in, std::string* text) {
  uint64_t size = 0;
  if (in->size() < sizeof size) return false;
  std::memcpy(&size, in->data(), sizeof size);
  in->remove_prefix(sizeof size);
  if (in->size() < size) return false;
  text->assign(in->substr(0, size));
  in->remove_prefix(size);
  return true;
}

std::vector<Fact> Decode(std::string_view in) {
  std::vector<Fact> facts;
  Fact fact;
  while (ConsumeText(&in, &fact.what) && ConsumeText(&in, &fact.value)) facts.push_back(fact);
  return facts;
}

// FNV-1a, from two starting points. Against accidents, not against attacks.
std::array<int64_t, 2> DigestOf(std::string_view text) {
  uint64_t a = 0xCBF29CE484222325u, b = 0x9AE16A3B2F90404Fu;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x9DDFEA08EB382D69u;
  }
  return {static_cast<int64_t>(a), static_cast<int64_t>(b)};
}

class Comparison {
 public:
  Comparison(Communicator comm, std::optional<TimePoint> deadline)
      : comm_(std::move(comm)), deadline_(deadline) {}

  Status Compare(const std::vector<Fact>& facts, const std::string& fault) {
    std::string encoded;
    for (const Fact& fact : facts) encoded += Encode(fact);
    Summary mine{.fault_size = static_cast<int64_t>(fault.size()),
                 .num_facts = static_cast<int64_t>(facts.size()),
                 .encoded_size = static_cast<int64_t>(encoded.size())};
    std::ranges::copy(DigestOf(encoded), mine.digest);
    std::vector<Summary> all(comm_.size());
    DDPRUN_RETURN_IF_ERROR(AllGather(&mine, all.data(), kSummaryElems));
    for (int r = 0; r < comm_.size(); ++r) {
      if (all[r].fault_size == 0) continue;
      std::string text = fault;
      DDPRUN_RETURN_IF_ERROR(Broadcast(&text, all[r].fault_size, r));
      return InvalidArgumentError(StrCat("rank ", r, ": ", text));
    }
    if (std::ranges::all_of(all, [&](const Summary& s) { return s == all[0]; })) return OkStatus();
    return NameDifference(facts, std::move(encoded), all[0].encoded_size);
  }

 private:
  // `encoded`: this rank's facts. `size`: of those of rank 0.
  Status NameDifference(const std::vector<Fact>& facts, std::string encoded, int64_t size) {
    DDPRUN_RETURN_IF_ERROR(Broadcast(&encoded, size, 0));
    const std::vector<Fact> expected = Decode(encoded);
    Difference mine;
    for (size_t i = 0; i < std::max(facts.size(), expected.size()); ++i) {
      if (i < facts.size() && i < expected.size() && facts[i].value == expected[i].value) continue;
      mine.index = static_cast<int64_t>(i);
      break;
    }
    const auto at = static_cast<size_t>(mine.index);
    std::string text = at < facts.size() ? Encode(facts[at]) : "";
    mine.encoded_size = static_cast<int64_t>(text.size());
    std::vector<Difference> all(comm_.size());
    DDPRUN_RETURN_IF_ERROR(AllGather(&mine, all.data(), sizeof(Difference) / sizeof(int64_t)));
    const auto first = std::ranges::min_element(all, {}, &Difference::index);
    const auto rank = static_cast<int>(first - all.begin());
    if (first->index == INT64_MAX) return InternalError("the digests of equal facts differ");
    DDPRUN_RETURN_IF_ERROR(Broadcast(&text, first->encoded_size, rank));
    const std::vector<Fact> theirs = Decode(text);
    const auto index = static_cast<size_t>(first->index);
    const bool expects = index < expected.size();
    if (!expects && theirs.empty()) return InternalError("a difference without a fact");
    const std::string here = expects ? StrCat(" is ", expected[index].value) : " does not exist";
    const std::string there = theirs.empty() ? " does not exist" : StrCat(" is ", theirs[0].value);
    return InvalidArgumentError(StrCat("the ranks differ: ", expects ? expected[index].what : theirs[0].what,
                                       here, " on rank 0 and", there, " on rank ", rank));
  }

  Status AllGather(const void* mine, void* all, int64_t num_elems) {
    return Finish(
        comm_.AllGather({mine, num_elems, DType::kInt64}, {all, num_elems * comm_.size(), DType::kInt64}));
  }
  // Replaces `text` with that of `root`, which has `size` bytes.
  Status Broadcast(std::string* text, int64_t size, int root) {
    if (comm_.rank() != root) text->assign(size, '\0');
    return Finish(comm_.Broadcast({text->data(), size, DType::kUInt8}, root));
  }
  Status Finish(Work work) { return deadline_ ? work.Wait(*deadline_) : work.Wait(); }

  Communicator comm_;
  const std::optional<TimePoint> deadline_;
};

}  // namespace

Status CompareFacts(Communicator comm, const std::vector<Fact>& facts, const std::string& fault,
                    std::optional<TimePoint> deadline) {
  if (comm.size() == 0) return comm.status();
  return Comparison(std::move(comm), deadline).Compare(facts, fault);
}

}  // namespace ddprun
