// Finds the language of a source by its suffix.
#include "ops/build/source_languages.h"

namespace anyaccel::ops {

const SourceLanguage* language_of(const std::string& source) {
  for (const SourceLanguage& language : source_languages()) {
    if (source.ends_with(language.suffix)) return &language;
  }
  return nullptr;
}

}  // namespace anyaccel::ops
