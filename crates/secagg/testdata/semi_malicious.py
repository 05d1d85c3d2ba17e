"""Degree, threshold, committee and quorum against a semi-malicious server, by counting in whole numbers.

source: counting, by the conditions of docs/SECAGG.md

Independent of the crate: nothing is approximated, no logarithm is taken. `python3 semi_malicious.py > semi_malicious.tsv`
takes some minutes. sigma = 40, eta = 20, G = 64: see docs/SECAGG.md, "Parameters".
"""

from fractions import Fraction
from math import comb

SECURITY = 2 ** (40 + 1 + 64)
FAILURE = 2**20


def least_bound(n, marked, drawn, times, against):
    """The least x with times * P[Hyp(n, marked, drawn) > x] * against <= 1."""
    everything, ways = comb(n, drawn), 0
    for y in range(min(marked, drawn), -1, -1):
        ways += comb(marked, y) * comb(n - marked, drawn - y)
        if times * ways * against > everything:
            return y
    return 0


def graph(n, corrupted, dropped):
    for k in range(2, n - 1, 2):
        # Twice the number of pairs of half-windows, against one bit less: no half is lost.
        x = least_bound(n, corrupted, k, n * (n - k - 1), SECURITY // 2)
        t = (k + x) // 2 + 1
        if t <= k and least_bound(n, dropped, k, n, FAILURE) <= k - t and connected(n, k, corrupted + dropped):
            return k, t
    return n - 1, (n - 1 + corrupted) // 2 + 1


def connected(n, k, gone):
    return n * (n - k - 1) * comb(gone, k) * SECURITY < 2 * comb(n, k)


def committee(n, corrupted, dropped):
    if n <= 300:
        return n, (n + corrupted) // 2 + 1
    for m in range(1, n):
        q = (m + least_bound(n, corrupted, m, 1, SECURITY)) // 2 + 1
        if q <= m and least_bound(n, dropped, m, 1, FAILURE) <= m - q:
            return m, q
    return n, (n + corrupted) // 2 + 1


print("# source: semi_malicious.py beside this file; gamma 0.333 means 1/3")
print("n\tgamma\tdelta\tdegree\tthreshold\tcommittee\tquorum")
for n in (60, 100, 200, 300, 301, 500, 1000, 2000, 6500):
    for gamma in ("0.333", "0.200", "0.100", "0.010"):
        for delta in ("0.05", "0.10", "0.20"):
            share = Fraction(1, 3) if gamma == "0.333" else Fraction(gamma)
            corrupted, dropped = int(share * n), int(Fraction(delta) * n)
            k, t = graph(n, corrupted, dropped)
            if n - 1 - dropped < t:
                continue
            m, q = committee(n, corrupted, dropped)
            print(n, gamma, delta, k, t, m, q, sep="\t")
