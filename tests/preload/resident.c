/* Prints the kernel's account of this process's resident memory. Allocates nothing itself. */
#include <fcntl.h>
#include <unistd.h>

int main(void) {
    static char text[8192];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text);
    if (length <= 0)
        return 1;
    return write(1, text, (size_t)length) == length ? 0 : 1;
}
