// Checks the properties of an ELF file that dlopen() assumes.
#include "base/files/elf_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace anyaccel {
namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);

constexpr unsigned char own_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

bool read_at(int file, uint64_t place, void* data, size_t size) {
  return pread(file, data, size, static_cast<off_t>(place)) == static_cast<ssize_t>(size);
}

}  // namespace

std::string damage_of_library(int file) {
  struct stat info {};
  if (fstat(file, &info) != 0) return "it cannot be looked at";
  const auto length = static_cast<uint64_t>(info.st_size);
  Header header{};
  if (length == 0) return "it is empty";
  if (!read_at(file, 0, &header, SELFMAG) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "it is not an ELF file";
  if (!read_at(file, 0, &header, sizeof(header)))
    return "it is cut off: " + std::to_string(length) + " bytes are less than a header";
  // A file for another machine: dlopen() reports it.
  if (header.e_ident[EI_CLASS] != own_class) return {};
  const auto cut_off = [length](const std::string& what, uint64_t begin, uint64_t size) -> std::string {
    if (begin <= length && size <= length - begin) return {};
    return "it is cut off or damaged: its " + what + " should lie in the bytes from " + std::to_string(begin) +
           " on, " + std::to_string(size) + " of them, and the file has " + std::to_string(length);
  };
  if (header.e_phnum == 0 || header.e_phentsize != sizeof(Segment)) return "it has no program headers";
  const uint64_t table = uint64_t{header.e_phnum} * sizeof(Segment);
  if (std::string damage = cut_off("program headers", header.e_phoff, table); !damage.empty()) return damage;
  if (header.e_shoff != 0) {
    const uint64_t sections = uint64_t{header.e_shnum} * header.e_shentsize;
    if (std::string damage = cut_off("section headers", header.e_shoff, sections); !damage.empty()) return damage;
  }
  std::vector<Segment> segments(header.e_phnum);
  if (!read_at(file, header.e_phoff, segments.data(), table)) return "it cannot be read";
  const Segment* dynamic = nullptr;
  for (const Segment& segment : segments) {
    if (segment.p_type == PT_DYNAMIC) dynamic = &segment;
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC && segment.p_type != PT_NOTE) continue;
    if (std::string damage = cut_off("segments", segment.p_offset, segment.p_filesz); !damage.empty()) return damage;
    if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz) return "its segments make no sense";
    // The loader fills the rest of a segment with zeros, and crashes where that may not be written.
    if (segment.p_type == PT_LOAD && segment.p_filesz < segment.p_memsz && !(segment.p_flags & PF_W)) {
      return "it is damaged: a segment that cannot be written is longer in memory than in the file";
    }
  }
  if (!dynamic) return "it is not a shared library: it has no dynamic section";
  // The loader reads this one where it was mapped.
  for (const Segment& segment : segments) {
    const uint64_t within = dynamic->p_vaddr - segment.p_vaddr;
    if (segment.p_type == PT_LOAD && dynamic->p_vaddr >= segment.p_vaddr && within <= segment.p_filesz &&
        dynamic->p_filesz <= segment.p_filesz - within && dynamic->p_offset - segment.p_offset == within)
      return {};
  }
  return "it is damaged: its dynamic section lies outside its segments";
}

bool is_function(const void* address) {
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT) != 0 &&
      symbol && info.dli_saddr == address) {
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);  // the same for 32 bits
    if (type == STT_OBJECT || type == STT_COMMON || type == STT_TLS) return false;
  }
  // A name without a type may still be data.
  struct Search {
    uintptr_t address;
    bool code;
  } search{reinterpret_cast<uintptr_t>(address), false};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const Segment& segment = library->dlpi_phdr[i];
          const uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
          if (segment.p_type != PT_LOAD || wanted->address < begin || wanted->address - begin >= segment.p_memsz)
            continue;
          wanted->code = segment.p_flags & PF_X;
          return 1;
        }
        return 0;
      },
      &search);
  return search.code;
}

}  // namespace anyaccel
