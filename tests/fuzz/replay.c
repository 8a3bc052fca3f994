/*
 * Runs a target on the files named by its arguments, each of which was a finding or taught the
 * fuzzer something. Any compiler builds it.
 */
#include "fuzz.h"

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (file == NULL) {
            perror(argv[i]);
            return 1;
        }
        static uint8_t bytes[1 << 20];
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        uint8_t *copy = exact_copy(bytes, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
    printf("%d inputs replayed\n", argc - 1);
    return argc < 2; /* a corpus that is not found is no success */
}
