# A mixed Perl program for `flagstone bench real-perl`: records, hashes, joins, sorting, text.
use strict;
use warnings;

my $size = $ARGV[0] // 1;
my $check = 0;
for my $turn (1 .. 3) {
    my (%by_tag, @rows);
    for my $id (1 .. $size * 4000) {
        my @tags = map { "tag" . ($id * $_ % 97) } 1 .. 5;
        push @rows, { id => $id, name => sprintf("user %05d", $id * 7919 % 10007), tags => [@tags] };
        push @{ $by_tag{$_} }, $rows[-1] for @tags;
    }
    my @order = sort { $a->{name} cmp $b->{name} or $a->{id} <=> $b->{id} } @rows;
    $check += $order[$turn]{id};
    my $text = join "\n", map { "$_->{id}\t$_->{name}\t" . join(",", @{ $_->{tags} }) } @order;
    my %words;
    $words{$_}++ for split /[\s,]+/, $text;
    $check += $words{$_} for grep { /^tag1/ } sort keys %words;
    (my $other = $text) =~ s/user (\d+)/<$1>/g;
    $check += length $other;
    delete @by_tag{ grep { /7$/ } keys %by_tag };
    $check += scalar @{ $by_tag{$_} } for keys %by_tag;
}
print "$check\n";
