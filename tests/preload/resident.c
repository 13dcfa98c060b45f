/* Prints the kernel's account of this process's mappings. Allocates nothing itself. */
#include <fcntl.h>
#include <unistd.h>

int main(void) {
    static char text[4096];
    int file = open("/proc/self/smaps", O_RDONLY);
    if (file < 0)
        return 1;
    for (;;) {
        ssize_t length = read(file, text, sizeof text);
        if (length <= 0)
            return length == 0 ? 0 : 1;
        if (write(1, text, (size_t)length) != length)
            return 1;
    }
}
