/* The model `mini-batch` for SPIN, written apart from the Python one.
 *
 * spin -a -DN=3 -DCAP=8 -DBUDGET=4 -DMAXBATCH=2 mini_batch.pml
 * gcc -O2 -DSAFETY -o pan pan.c && ./pan -w24
 *
 * A state is kept only between atomic steps. What a tick needs on its way
 * (free, choosing, mask, ...) is put back to 0 at its end, and so tells no
 * two states apart.
 */
#ifndef PROMPT
#define PROMPT 4
#endif
#ifndef MAXTOKENS
#define MAXTOKENS 4
#endif
#ifndef BLOCK
#define BLOCK 2
#endif
#ifndef CHUNK
#define CHUNK 2
#endif
#define NEED ((PROMPT + MAXTOKENS + BLOCK - 1) / BLOCK)

#define NEW 0
#define WAITING 1
#define PREFILLING 2
#define DECODING 3
#define DONE 4

byte status[N], prefilled[N], generated[N];
byte queue[N], queued;		/* waiting requests, first come first */
byte running[N], admitted;	/* admitted requests, in order of admission */

byte free, i, j, r, chunk, choosing, mask;
bit emits[N];

#define LEAST(x, y) ((x) < (y) -> (x) : (y))

inline submit(request) {
	d_step {
		status[request] = WAITING;
		queue[queued] = request;
		queued++
	}
}

inline feed(request) {
	chunk = LEAST(CHUNK, PROMPT - prefilled[request]);
	chunk = LEAST(chunk, free);
	prefilled[request] = prefilled[request] + chunk;
	free = free - chunk;
	if
	:: prefilled[request] == PROMPT ->
		status[request] = DECODING;
		emits[request] = 1
	:: else ->
		status[request] = PREFILLING
	fi
}

inline schedule() {
	free = BUDGET;
	i = 0;
	do	/* decodes first, one token each */
	:: i < admitted ->
		r = running[i];
		if
		:: status[r] == DECODING && free > 0 -> emits[r] = 1; free--
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	do	/* then chunks; a prompt completed here emits, and did not decode */
	:: i < admitted ->
		r = running[i];
		if
		:: status[r] == PREFILLING -> feed(r)
		:: else
		fi;
		i++
	:: else -> break
	od;
	do	/* then the queue, while there are seats, memory and budget */
	:: queued > 0 && admitted < MAXBATCH && (admitted + 1) * NEED <= CAP && free > 0 ->
		r = queue[0];
		j = 1;
		do
		:: j < queued -> queue[j - 1] = queue[j]; j++
		:: else -> break
		od;
		queued--;
		queue[queued] = 0;
		running[admitted] = r;
		admitted++;
		feed(r)
	:: else -> break
	od;
	i = 0;
	do	/* who may choose: those that the length does not end anyway */
	:: i < admitted ->
		r = running[i];
		if
		:: emits[r] && generated[r] + 1 < MAXTOKENS -> choosing++
		:: else
		fi;
		i++
	:: else -> break
	od
}

inline emit() {
	i = 0;
	do
	:: i < admitted ->
		r = running[i];
		if
		:: emits[r] ->
			emits[r] = 0;
			generated[r] = generated[r] + 1;
			if
			:: generated[r] == MAXTOKENS -> status[r] = DONE
			:: else ->
				if
				:: mask & 1 -> status[r] = DONE
				:: else
				fi;
				mask = mask >> 1
			fi
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	j = 0;
	do	/* keep those that are not done, in order */
	:: i < admitted ->
		r = running[i];
		running[i] = 0;
		if
		:: status[r] != DONE -> running[j] = r; j++
		:: else
		fi;
		i++
	:: else -> break
	od;
	admitted = j;
	free = 0;
	i = 0;
	j = 0;
	r = 0;
	chunk = 0;
	choosing = 0;
	mask = 0
}

active proctype batch() {
end:
	do
	:: atomic { status[0] == NEW -> submit(0) }
#if N > 1
	:: atomic { status[1] == NEW -> submit(1) }
#endif
#if N > 2
	:: atomic { status[2] == NEW -> submit(2) }
#endif
#if N > 3
	:: atomic { status[3] == NEW -> submit(3) }
#endif
#if N > 4
	:: atomic { status[4] == NEW -> submit(4) }
#endif
#if N > 5
	:: atomic { status[5] == NEW -> submit(5) }
#endif
#if N > 6
	:: atomic { status[6] == NEW -> submit(6) }
#endif
	:: atomic {
		admitted + queued > 0 ->
		d_step { schedule() };
		if	/* any set of those that may choose ends with EOS */
		:: mask = 0
		:: choosing > 0 -> mask = 1
		:: choosing > 1 -> mask = 2
		:: choosing > 1 -> mask = 3
		:: choosing > 2 -> mask = 4
		:: choosing > 2 -> mask = 5
		:: choosing > 2 -> mask = 6
		:: choosing > 2 -> mask = 7
		:: choosing > 3 -> mask = 8
		:: choosing > 3 -> mask = 9
		:: choosing > 3 -> mask = 10
		:: choosing > 3 -> mask = 11
		:: choosing > 3 -> mask = 12
		:: choosing > 3 -> mask = 13
		:: choosing > 3 -> mask = 14
		:: choosing > 3 -> mask = 15
		fi;
		d_step { emit() }
	}
	od
}
