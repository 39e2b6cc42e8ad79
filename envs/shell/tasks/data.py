"""Tasks of data: tables and lists into other tables and lists."""

from __future__ import annotations

import json

from .task import Draw, FileIs, ShellTask

__all__ = ["clean_list", "filter_rows", "flatten_records", "sum_column"]


def sum_column(draw: Draw) -> ShellTask:
    source, *regions = draw.words(4)
    rows = [(draw.rng.choice(regions), draw.number(1, 500)) for _ in range(20)] + [(each, 5) for each in regions]
    sums = {region: sum(amount for each, amount in rows if each == region) for region in sorted(regions)}
    program = 'NR > 1 {sum[$1] += $2} END {for (name in sum) print name "," sum[name]}'
    return ShellTask(
        goal=f"Add up the amounts of {source}.csv for each region. Write lines such as north,12 into totals.csv, "
        "sorted, without a head.",
        files={f"{source}.csv": "region,amount\n" + "".join(f"{region},{amount}\n" for region, amount in rows)},
        solution=(f"head -n 3 {source}.csv", f"awk -F, '{program}' {source}.csv | sort > totals.csv"),
        checks=(FileIs(path="totals.csv", text="\n".join(f"{region},{amount}" for region, amount in sums.items())),),
    )


def filter_rows(draw: Draw) -> ShellTask:
    source, *names = draw.words(15)
    age = draw.number(30, 50)
    rows = [f"{name},{draw.rng.choice(('north', 'south'))},{draw.number(20, 60)}" for name in names]
    rows += [f"{source},south,{age}", f"{source},north,{age + 1}"]
    kept = [row for row in rows if int(row.rpartition(",")[2]) > age]
    return ShellTask(
        goal=f"Write into older.csv the head of {source}.csv and its rows with an age above {age}, in the same order.",
        files={f"{source}.csv": "\n".join(("name,side,age", *rows, ""))},
        solution=(f"head -n 3 {source}.csv", f"awk -F, 'NR == 1 || $3 > {age}' {source}.csv > older.csv"),
        checks=(FileIs(path="older.csv", text="\n".join(("name,side,age", *kept))),),
    )


def flatten_records(draw: Draw) -> ShellTask:
    source, *names = draw.words(9)
    items = [{"id": at + 1, "name": name, "price": draw.number(1, 900)} for at, name in enumerate(names)]
    program = 's/.*"name": "\\([a-z]*\\)", "price": \\([0-9]*\\).*/\\1,\\2/'
    return ShellTask(
        goal=f"Each line of {source}.jsonl is an object. Write lines such as pen,3 with name and price of each into "
        "items.csv, sorted, without a head.",
        files={f"{source}.jsonl": "".join(json.dumps(item) + "\n" for item in items)},
        solution=(f"head -n 2 {source}.jsonl", f"sed '{program}' {source}.jsonl | sort > items.csv"),
        checks=(FileIs(path="items.csv", text="\n".join(sorted(f"{each['name']},{each['price']}" for each in items))),),
    )


def clean_list(draw: Draw) -> ShellTask:
    source, host, *names = draw.words(10)
    addresses = [f"{name}@{host}.example" for name in names]
    lines = list[str]()
    for address in (*addresses, *draw.rng.sample(addresses, 4)):
        written = draw.rng.choice((address, address.upper(), address.title()))
        lines.append(draw.rng.choice(("", "  ")) + written + draw.rng.choice(("", " ")))
    lines.insert(3, "")
    draw.rng.shuffle(lines)
    return ShellTask(
        goal=f"Write the addresses of {source}.txt into clean.txt: in small letters, without spaces or empty lines, "
        "each once, sorted.",
        files={f"{source}.txt": "\n".join((*lines, ""))},
        solution=(f"tr A-Z a-z < {source}.txt | tr -d ' ' | grep . | sort -u > clean.txt",),
        checks=(FileIs(path="clean.txt", text="\n".join(sorted(addresses))),),
    )
