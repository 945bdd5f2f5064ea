// Definitions of symbols that only newer glibc versions have and that Debian 12's libstdc++.a and
// libgcc_eh.a use. A program that is linked with these definitions also starts on hosts with an older
// glibc. On hosts with a newer glibc, the program uses these definitions instead of glibc's own.
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>
#include <sys/single_threaded.h>

#include <cstdint>
#include <cstdlib>

namespace {

struct Search {
  uintptr_t pc;
  dl_find_object* found;
};

// Callback for dl_iterate_phdr. If `object` contains search->pc and has unwind tables, fills in
// *search->found and returns 1, which stops the iteration.
int FindIn(dl_phdr_info* object, size_t, void* data) {
  auto* const search = static_cast<Search*>(data);
  uintptr_t begin = UINTPTR_MAX, end = 0;
  void* eh_frame = nullptr;
  bool has_pc = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    const uintptr_t segment = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_EH_FRAME) eh_frame = reinterpret_cast<void*>(segment);
    if (header.p_type != PT_LOAD) continue;
    begin = segment < begin ? segment : begin;
    end = segment + header.p_memsz > end ? segment + header.p_memsz : end;
    has_pc = has_pc || (search->pc >= segment && search->pc < segment + header.p_memsz);
  }
  if (!has_pc || eh_frame == nullptr) return 0;
  *search->found = {};
  search->found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search->found->dlfo_map_end = reinterpret_cast<void*>(end);
  search->found->dlfo_eh_frame = eh_frame;
  return 1;
}

}  // namespace

extern "C" {

// Part of glibc since 2.32. Nonzero means that the process has a single thread, so that reference counts
// need not be atomic. Zero is always safe.
char __libc_single_threaded = 0;

// Part of glibc since 2.35. The unwinder calls this function and reads the map bounds and
// dlfo_eh_frame of the result.
int _dl_find_object(void* pc, dl_find_object* result) noexcept {
  Search search = {.pc = reinterpret_cast<uintptr_t>(pc), .found = result};
  return dl_iterate_phdr(FindIn, &search) == 1 ? 0 : -1;
}

// Part of glibc since 2.36. std::random_device calls this function.
uint32_t arc4random() noexcept {
  uint32_t value = 0;
  // Signals do not interrupt a getrandom call that requests at most 256 bytes. The call fails on Linux before
  // 3.17, which has no getrandom.
  if (getrandom(&value, sizeof value, 0) != sizeof value) abort();
  return value;
}

}  // extern "C"
