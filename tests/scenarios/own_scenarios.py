"""Our own scenarios: each states one promise, and a number that would differ if it were broken."""

from typing import Final, NamedTuple


class Own(NamedTuple):
    promise: str
    scenario: str
    check: str


OWN: Final = (
    Own(
        "a life alone: the chunks of the prompt, then one token a tick, then everything is free",
        "cfg blocks=12 bs=8 chunk=10 budget=40 batch=3 | submit A p=23 m=4; run",
        "chunks('A')==[10,10,3] and first['A']==3 and done['A']==6 and free==12",
    ),
    Own(
        "what could not end alone is refused at once, and what just could is served",
        "cfg blocks=3 bs=8 chunk=16 budget=32 batch=4"
        " | submit A p=20 m=6; submit B p=20 m=5; submit E p=25 m=1; run",
        "st=={'A':'rejected','B':'length','E':'rejected'} and out['B']==5 and free==3",
    ),
    Own(
        "decodes never wait for a prompt: a long one is cut to what they leave of the budget",
        "cfg blocks=60 bs=8 chunk=30 budget=20 batch=6"
        " | submit A p=5 m=12; submit B p=5 m=12; tick 2; submit L p=100 m=1; run",
        "gap('A')==1 and gap('B')==1 and chunks('L')[0]==18 and done['A']==12",
    ),
    Own(
        "the youngest makes room for the oldest, and comes back with all it had",
        "cfg blocks=7 bs=8 chunk=32 budget=64 batch=4"
        " | submit A p=16 m=20; submit B p=16 m=20; run",
        "pre=={'A':0,'B':1} and out=={'A':20,'B':20} and done['A']==20 and first['B']==1",
    ),
    Own(
        "who was preempted goes before who came later, also when the later one would fit",
        "cfg blocks=7 bs=8 chunk=32 budget=64 batch=4"
        " | submit A p=16 m=20; submit B p=16 m=20; tick 9; submit S p=4 m=2; run",
        "pre['B']==1 and start('S')>done['A'] and st['S']=='length'",
    ),
    Own(
        "one eviction that is enough is the only one",
        "cfg blocks=9 bs=8 chunk=32 budget=64 batch=4"
        " | submit A p=15 m=18; submit B p=14 m=18; submit E p=23 m=12; run",
        "npre==1 and pre['E']==1 and out=={'A':18,'B':18,'E':12}",
    ),
    Own(
        "EOS ends a request in the tick that yields it, and its seat is taken in the next",
        "cfg blocks=20 bs=8 chunk=32 budget=64 batch=1"
        " | submit A p=9 m=30 eos@5; submit B p=9 m=30 eos@1; submit E p=9 m=1; run",
        "done=={'A':5,'B':6,'E':7} and st=={'A':'eos','B':'eos','E':'length'}",
    ),
    Own(
        "EOS after a preemption is still the token that it was",
        "cfg blocks=7 bs=8 chunk=32 budget=64 batch=4"
        " | submit A p=16 m=20; submit B p=16 m=20 eos@15; run",
        "pre['B']==1 and st=={'A':'length','B':'eos'} and out['B']==15",
    ),
    Own(
        "a cancel takes effect at once, in every phase, and only on that id",
        "cfg blocks=20 bs=8 chunk=8 budget=16 batch=2 | submit D p=3 m=9; tick 1;"
        " submit P p=40 m=9; submit D1 p=3 m=4; tick 1; cancel P; cancel D; cancel D;"
        " cancel nobody; tick 1; cancel *; tick 1",
        "set(st.values())=={'cancelled'} and out['D']==2 and start('D1')==3 and log[3]=={}"
        " and free==20",
    ),
    Own(
        "an id is free again as soon as its request is done",
        "cfg blocks=20 bs=8 chunk=32 budget=64 batch=4"
        " | submit A p=9 m=2; run; submit A p=10 m=3; tick 1; cancel A; submit A p=11 m=4; run",
        "out['A']==4 and st['A']=='length' and t==7",
    ),
    Own(
        "seats, not requests, are what a full batch has none of",
        "cfg blocks=40 bs=8 chunk=32 budget=64 batch=3 | repeat 7 { submit S# p=5 m=4 }; run",
        "max(len(fed) for fed in log)==3 and done['S2']==4 and start('S3')==5 and done['S6']==12",
    ),
    Own(
        "a budget of one token still serves everybody",
        "cfg blocks=10 bs=4 chunk=8 budget=1 batch=4 | repeat 3 { submit S# p=3 m=2 }; run",
        "all(sum(fed.values())==1 for fed in log) and t==12 and set(st.values())=={'length'}",
    ),
    Own(
        "a pool far too small for the crowd serves it in turn, the oldest undisturbed",
        "cfg blocks=4 bs=4 chunk=16 budget=32 batch=16 | repeat 9 { submit S# p=7 m=6 }; run",
        "pre['S0']==0 and set(st.values())=={'length'} and list(done)==sorted(done)",
    ),
    Own(
        "a tick in which the model failed did not happen",
        "cfg blocks=20 bs=8 chunk=8 budget=16 batch=2 | repeat 3 { submit S# p=12 m=3 }; run",
        "done=={'S0':4,'S1':4,'S2':8} and stats['ticks']==8 and free==20",
    ),
    Own(
        "idle ticks are legal, and change nothing but the clock",
        "cfg blocks=20 bs=8 chunk=8 budget=16 batch=2 | tick 3; submit A p=2 m=2; run; tick 4",
        "t==9 and done['A']==5 and stats['metrics']['gpu_utilization']==2/9",
    ),
)
