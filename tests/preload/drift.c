/* Replaces random blocks while the mean size goes up and down: drift LIVE_MB MILLION_STEPS MILLION_STEPS_OF_A_WAVE.
   Prints the mean of resident over live bytes, in hundredths. A block's bytes between its ends stay as they came, so
   what an earlier block left there is seen by the allocator. */
#include <stdio.h>
#include <stdlib.h>

static unsigned long long state = 88172645463325252ULL;

static unsigned long long draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long whole, pages;
    if (file == NULL || fscanf(file, "%ld %ld", &whole, &pages) != 2) exit(3);
    fclose(file);
    return pages * 4096.0;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    double most = atof(words[1]) * 1e6, steps = atof(words[2]) * 1e6, wave = atof(words[3]) * 1e6;
    size_t room = 1 << 20, blocks = 0;
    char **block = calloc(room, sizeof *block);
    unsigned *bytes = calloc(room, sizeof *bytes);
    for (size_t at = 0; at < room; at++) block[at] = NULL, bytes[at] = 1;
    /* Sizes are exponential around the mean. */
    static double share[4096];
    for (int at = 4094; at >= 0; at--) share[at] = share[at + 1] + 1.0 / (at + 1);
    double start = resident(), live = 0, mean = 32, sum = 0, next = 0;
    int samples = 0, part = 0;
    for (double step = 0; step < steps; step++) {
        if (step >= next) {
            /* 512 times as large after 128 parts of a wave, and back. */
            mean = part++ % 256 < 128 ? mean * 1.04994 : mean / 1.04994;
            if (step > wave / 4) {
                sum += (resident() - start) / live;
                samples++;
            }
            next = step + wave / 256;
        }
        unsigned size = 1 + (unsigned)(mean * share[draw() & 4095]);
        while (blocks > 0 && (live + size > most || blocks == room)) {
            size_t at = draw() % blocks;
            live -= bytes[at];
            free(block[at]);
            blocks--;
            block[at] = block[blocks];
            bytes[at] = bytes[blocks];
        }
        char *new = malloc(size);
        if (new == NULL) return 4;
        for (size_t at = 0; at < size; at += 4096) new[at] = 1;
        new[size - 1] = 1;
        block[blocks] = new;
        bytes[blocks++] = size;
        live += size;
    }
    printf("%.0f\n", 100 * sum / samples);
    return 0;
}
